//! A typed object together with its JSON, for children that contain a user's template.
//!
//! Typed objects lose fields that are newer than this build. A field of a user's template has to reach the API server,
//! and has to be compared with the live object when it is decided whether to apply.

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Deref;

/// A `K` and the JSON that it was read from. The JSON is what is written.
#[derive(Clone, Debug)]
pub struct RawObject<K> {
    typed: K,
    json: Value,
}

impl<K: DeserializeOwned> RawObject<K> {
    /// Reads an object, keeping its JSON.
    pub fn new(json: Value) -> Result<Self, serde_json::Error> {
        Ok(Self { typed: K::deserialize(&json)?, json })
    }
}

impl<K> RawObject<K> {
    /// The complete object.
    pub fn as_json(&self) -> &Value {
        &self.json
    }
}

impl<K> Deref for RawObject<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.typed
    }
}

impl<K> Serialize for RawObject<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for RawObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<K: Resource> Resource for RawObject<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.typed.meta()
    }

    /// Changes only the typed view; the JSON that is written stays as it is.
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.typed.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::RawObject;
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::ResourceExt;
    use serde_json::{Value, json};

    #[test]
    fn fields_unknown_to_this_build_are_kept() {
        let json = json!({
            "metadata": { "name": "a" },
            "spec": { "replicas": 2, "template": { "spec": { "futureField": [0, false, ""] } } },
        });
        let raw: RawObject<Deployment> = serde_json::from_value(json.clone()).unwrap();
        assert_eq!((raw.name_any().as_str(), raw.spec.as_ref().unwrap().replicas), ("a", Some(2)));
        assert_eq!(serde_json::to_value(&raw).unwrap(), json);
    }

    #[test]
    fn mistyped_field_is_named_in_the_error() {
        let error = RawObject::<Deployment>::new(json!({ "spec": { "replicas": "two" } })).unwrap_err();
        assert!(error.to_string().contains("\"two\""), "{error}");
        assert!(RawObject::<Deployment>::new(Value::Null).is_err());
    }
}
