//! Parts of an object that keep the user's JSON.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The JSON of a `T`, kept verbatim.
///
/// The CRDs do not describe these parts, so they may contain anything: fields newer than this build, explicit zeros that
/// override our defaults, and mistakes. The JSON preserves all of them; [`Raw::read`] returns the typed view or an error.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Raw<T> {
    value: Value,
    #[serde(skip)]
    content: PhantomData<fn() -> T>,
}

/// A part of an object that does not have the expected type.
#[derive(Debug, thiserror::Error)]
#[error("not a valid {expected}: {source}")]
pub struct TypeMismatch {
    expected: &'static str,
    source: serde_json::Error,
}

impl<T> Raw<T> {
    /// Wraps JSON verbatim.
    pub const fn new(value: Value) -> Self {
        Self { value, content: PhantomData }
    }

    /// True if the field is absent or `null`.
    pub fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// The user's JSON; `null` if absent.
    pub const fn as_value(&self) -> &Value {
        &self.value
    }
}

impl<T: DeserializeOwned> Raw<T> {
    /// The typed view; `None` if absent.
    pub fn read(&self) -> Result<Option<T>, TypeMismatch> {
        if self.is_absent() {
            return Ok(None);
        }
        T::deserialize(&self.value)
            .map(Some)
            .map_err(|source| TypeMismatch { expected: short_name(std::any::type_name::<T>()), source })
    }
}

/// `Container` of `k8s_openapi::api::core::v1::Container`; a generic type keeps its parameters.
fn short_name(type_name: &'static str) -> &'static str {
    let path_end = type_name.find('<').unwrap_or(type_name.len());
    type_name[..path_end].rfind("::").map_or(type_name, |at| &type_name[at + 2..])
}

impl<T> Default for Raw<T> {
    fn default() -> Self {
        Self::new(Value::Null)
    }
}

impl<T> fmt::Debug for Raw<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The schema of open objects; other fields override it with `schema_with`.
impl<T> JsonSchema for Raw<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Raw".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Container;
    use serde_json::json;

    #[test]
    fn unknown_fields_and_explicit_zeros_survive_a_round_trip() {
        let written = json!({ "image": "a", "unknownField": { "x": [0, false, ""] }, "tty": false });
        let raw: Raw<Container> = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&raw).unwrap(), written);
        assert_eq!(raw.read().unwrap().unwrap().image.as_deref(), Some("a"));
    }

    #[test]
    fn ill_typed_field_is_an_error_only_when_read_and_names_the_type() {
        let raw: Raw<Container> = serde_json::from_value(json!({ "image": 5 })).unwrap();
        let message = raw.read().unwrap_err().to_string();
        assert!(message.starts_with("not a valid Container: invalid type: integer `5`"), "{message}");
    }

    #[test]
    fn null_is_absent() {
        assert!(Raw::<Container>::default().is_absent());
        assert_eq!(serde_json::from_value::<Raw<Container>>(Value::Null).unwrap().read().unwrap(), None);
    }
}
