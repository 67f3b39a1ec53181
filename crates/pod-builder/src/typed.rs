//! Conversion between Kubernetes types and JSON.
//!
//! The user's part of a pod template stays JSON, so that fields which this build does not know are kept. It has to fit
//! its type all the same; if it does not, the error names the field.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A field whose value does not fit its type.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be read")]
pub struct TypeMismatch {
    /// The path of the field in the custom resource.
    pub path: String,
    #[source]
    source: serde_json::Error,
}

/// Deserialises a `T`. `root` is the first part of the path in the error.
pub fn read<T: DeserializeOwned>(root: &str, value: &Value) -> Result<T, TypeMismatch> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { root.to_owned() } else { format!("{root}.{path}") };
        TypeMismatch { path, source: error.into_inner() }
    })
}

/// The JSON of a Kubernetes type. Serialisation cannot fail, because map keys are strings.
pub(crate) fn json(typed: &impl Serialize) -> Value {
    serde_json::to_value(typed).unwrap_or_default()
}
