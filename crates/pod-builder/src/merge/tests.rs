//! Properties of the merge, and the order of its lists.

use super::*;
use crate::schema::{CONTAINER, POD};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

fn envs(names: &str) -> Value {
    names.split_whitespace().map(|name| json!({ "name": name })).collect()
}

fn names(list: &Value) -> String {
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    names.join(" ")
}

#[rstest]
#[case::new_elements_first("SACKD_OPTIONS", "A B", "A B SACKD_OPTIONS")]
#[case::base_order_before_a_patched_element("A B C", "B X", "A B X C")]
#[case::new_element_before_a_patched_one("A B C", "X B", "X A B C")]
#[case::patch_order_wins("A B C", "C A", "B C A")]
#[case::in_place("TOPOLOGY CPUS MEMORY", "CPUS MINE", "TOPOLOGY CPUS MINE MEMORY")]
#[case::no_new_element("A B", "A B", "A B")]
#[case::duplicate_keys_merge("A", "X X A A", "X A")]
fn merged_list_has_the_order_of_a_strategic_merge(
    #[case] base: &str,
    #[case] patch: &str,
    #[case] merged: &str,
) {
    let result = merge(json!({ "env": envs(base) }), &json!({ "env": envs(patch) }), &CONTAINER);
    assert_eq!(names(&result["env"]), merged);
}

#[test]
fn list_that_the_base_lacks_is_copied_unchanged() {
    let result = merge(json!({}), &json!({ "env": envs("B A B") }), &CONTAINER);
    assert_eq!(names(&result["env"]), "B A B");
}

#[test]
fn elements_without_a_key_are_not_merged() {
    let patch = json!({ "env": [{ "value": "x" }, "odd", { "value": "y" }] });
    let result = merge(json!({ "env": envs("A") }), &patch, &CONTAINER);
    assert_eq!(result["env"], json!([{ "value": "x" }, "odd", { "value": "y" }, { "name": "A" }]));
}

/// JSON similar enough to containers and pods to reach every rule; `list` builds its lists.
fn value(list: fn(Vec<Value>) -> Value) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        "[ab]?".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let key = prop::sample::select(vec![
            "name",
            "value",
            "valueFrom",
            "env",
            "ports",
            "containerPort",
            "protocol",
            "volumeMounts",
            "mountPath",
            "livenessProbe",
            "httpGet",
            "exec",
            "periodSeconds",
            "volumes",
            "emptyDir",
            "secret",
            "projected",
            "securityContext",
            "tolerations",
            "lifecycle",
            "preStop",
            "$patch",
            "x",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(list),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A list of objects with unique keys, as in a valid object.
fn keyed(items: Vec<Value>) -> Value {
    let key = |index: usize| json!({ "name": index, "containerPort": index, "mountPath": index });
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            let mut element = if item.is_object() { item } else { json!({ "x": item }) };
            element.as_object_mut().unwrap().extend(key(index).as_object().unwrap().clone());
            element
        })
        .collect()
}

const SCHEMAS: [&Object; 2] = [&CONTAINER, &POD];

proptest! {
    #[test]
    fn null_and_empty_values_change_nothing(base in value(Value::from)) {
        let empty = json!({ "env": null, "securityContext": {}, "volumes": [], "x": { "x": null }, "$patch": "delete" });
        for (patch, schema) in [Value::Null, json!({}), empty].iter().flat_map(|patch| SCHEMAS.map(|s| (patch, s))) {
            prop_assert_eq!(&merge(base.clone(), patch, schema), &base);
        }
    }

    #[test]
    fn merge_is_idempotent(base in value(keyed), patch in value(keyed)) {
        for schema in SCHEMAS {
            let once = merge(base.clone(), &patch, schema);
            prop_assert_eq!(&merge(once.clone(), &patch, schema), &once);
        }
    }

    #[test]
    fn scalars_of_any_patch_override_any_base(base in value(Value::from), patch in value(Value::from)) {
        for schema in SCHEMAS {
            let merged = merge(base.clone(), &patch, schema);
            let fields = patch.as_object().into_iter().flatten();
            let scalars = fields.filter(|(key, value)| !key.starts_with('$') && (value.is_boolean() || value.is_i64()));
            for (key, value) in scalars {
                prop_assert_eq!(&merged[key], value, "the value of the patch");
            }
        }
    }
}
