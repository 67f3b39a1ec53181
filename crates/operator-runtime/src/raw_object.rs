//! An object with all of its JSON, for children that carry what a user wrote.
//!
//! Typed objects lose fields that are newer than this build. Where such a field comes from a user's template it has to
//! reach the API server, and has to be seen there again when it is decided whether anything changed.

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Deref;

/// A `K`, and the JSON that it was read from. What is written is the JSON.
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
    /// All of the object.
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

    /// Changes the typed view alone: the JSON is for writing, and is written as it was made.
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
    fn fields_that_this_build_does_not_know_survive() {
        let json = json!({
            "metadata": { "name": "a" },
            "spec": { "replicas": 2, "template": { "spec": { "fieldOfTomorrow": [0, false, ""] } } },
        });
        let exact: RawObject<Deployment> = serde_json::from_value(json.clone()).unwrap();
        assert_eq!((exact.name_any().as_str(), exact.spec.as_ref().unwrap().replicas), ("a", Some(2)));
        assert_eq!(serde_json::to_value(&exact).unwrap(), json);
    }

    #[test]
    fn what_is_no_such_object_is_refused_with_the_reason() {
        let refusal = RawObject::<Deployment>::new(json!({ "spec": { "replicas": "two" } })).unwrap_err();
        assert!(refusal.to_string().contains("\"two\""), "{refusal}");
        assert!(RawObject::<Deployment>::new(Value::Null).is_err());
    }
}
