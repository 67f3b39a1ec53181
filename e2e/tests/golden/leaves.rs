//! An object as a flat list of paths and values.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The value at a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// One value, which includes an empty object or list.
    Value(Value),
    /// A text of several lines.
    Lines(Vec<String>),
}

/// The fields that may identify the items of a list, by preference.
const KEYS: [&str; 5] = ["name", "mountPath", "type", "containerPort", "port"];

/// All leaves of an object. Items of lists are named by a key where there is one, and their order is a leaf of its own.
pub fn leaves(object: &Value) -> BTreeMap<String, Leaf> {
    let mut leaves = BTreeMap::new();
    add(object, String::new(), &mut leaves);
    leaves
}

fn add(node: &Value, path: String, leaves: &mut BTreeMap<String, Leaf>) {
    match node {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add(value, path, leaves);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let keys = keys(items);
            if let Some(keys) = keys.as_ref().filter(|keys| keys.len() > 1) {
                leaves.insert(format!("{path}[order]"), Leaf::Value(keys.join(",").into()));
            }
            let keys = keys.unwrap_or_else(|| (0..items.len()).map(|index| index.to_string()).collect());
            for (key, item) in keys.iter().zip(items) {
                add(item, format!("{path}[{key}]"), leaves);
            }
        }
        Value::String(text) if text.contains('\n') => {
            leaves.insert(path, Leaf::Lines(text.split('\n').map(str::to_owned).collect()));
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            leaves.insert(path, Leaf::Value(node.clone()));
        }
    }
}

/// The keys that identify the items of a list, if they have one of [`KEYS`].
fn keys(items: &[Value]) -> Option<Vec<String>> {
    KEYS.iter().find_map(|key| {
        let keys: Vec<String> = items.iter().filter_map(|item| item.get(key)).map(value_text).collect();
        let distinct: BTreeSet<&String> = keys.iter().collect();
        (distinct.len() == items.len() && keys.len() == items.len()).then_some(keys)
    })
}

/// A value as text.
pub fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn items_are_named_by_their_keys_and_their_order_is_a_leaf() {
    let object = serde_json::json!({
        "a": { "empty": {}, "none": [] },
        "ports": [{ "name": "x", "port": 1 }, { "name": "y", "port": 2 }],
        "one": [{ "name": "x" }],
        "same": [{ "name": "x" }, { "name": "x" }],
        "text": "a\nb",
    });
    let paths: Vec<String> = leaves(&object).into_keys().collect();
    let expected = [
        "a.empty",
        "a.none",
        "one[x].name",
        "ports[order]",
        "ports[x].name",
        "ports[x].port",
        "ports[y].name",
        "ports[y].port",
        "same[0].name",
        "same[1].name",
        "text",
    ];
    assert_eq!(paths, expected);
}
