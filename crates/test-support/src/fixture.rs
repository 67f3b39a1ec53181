//! Typed objects for tests, from a base that is complete and the fields that one test changes.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An object of type `K` with this metadata, whose spec is `base_spec` with the fields of `change` set as
/// [`with_fields`] sets them.
///
/// # Panics
/// If `change` is not a JSON object, or the result does not deserialize as `K`.
pub fn object_with_spec<K: DeserializeOwned>(metadata: &Value, base_spec: &Value, change: &Value) -> K {
    let object = json!({ "metadata": metadata, "spec": with_fields(base_spec, change) });
    serde_json::from_value(object).expect("the object deserializes")
}

/// Metadata of a custom resource with a label and an annotation, and with the annotation of `kubectl apply`, which children
/// must not inherit.
pub fn owner_metadata(name: &str) -> Value {
    json!({
        "name": name,
        "namespace": "ns",
        "uid": "u",
        "labels": { "team": "hpc" },
        "annotations": { "note": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}" },
    })
}

/// `base` with each top-level field of `change` set to its value there. A field is replaced as a whole, never merged.
/// `null` is set as `null`, which an optional field deserializes as absent.
///
/// # Panics
/// If `base` or `change` is not a JSON object.
pub fn with_fields(base: &Value, change: &Value) -> Value {
    let mut fields = base.as_object().expect("the base is a JSON object").clone();
    fields.extend(change.as_object().expect("the change is a JSON object").clone());
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use rstest::rstest;

    #[rstest]
    #[case::no_field_keeps_the_base(json!({}), json!({ "a": { "b": 1, "c": 2 } }))]
    #[case::new_field_is_added(json!({ "d": 3 }), json!({ "a": { "b": 1, "c": 2 }, "d": 3 }))]
    #[case::field_is_replaced_not_merged(json!({ "a": { "c": 4 } }), json!({ "a": { "c": 4 } }))]
    #[case::null_is_set(json!({ "a": null }), json!({ "a": null }))]
    fn change_sets_top_level_fields(#[case] change: Value, #[case] expected: Value) {
        assert_eq!(with_fields(&json!({ "a": { "b": 1, "c": 2 } }), &change), expected);
    }

    #[test]
    fn null_clears_an_optional_spec_field_and_keeps_the_others() {
        let metadata = json!({ "name": "p", "namespace": "ns" });
        let base_spec = json!({ "containers": [], "hostname": "h", "nodeName": "n" });
        let pod: Pod = object_with_spec(&metadata, &base_spec, &json!({ "hostname": null }));
        let spec = pod.spec.unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("p"));
        assert_eq!((spec.hostname, spec.node_name.as_deref()), (None, Some("n")));
    }

    #[test]
    #[should_panic(expected = "the object deserializes")]
    fn spec_of_the_wrong_type_panics() {
        object_with_spec::<Pod>(&json!({}), &json!({ "containers": [] }), &json!({ "hostname": 1 }));
    }
}
