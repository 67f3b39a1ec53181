//! Small operations on JSON.

use serde_json::Value;

/// Removes fields.
pub fn remove(object: &mut Value, keys: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// Removes the fields that have the value in `defaults`.
pub fn remove_defaults(object: &mut Value, defaults: &Value) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|key, value| defaults.get(key) != Some(value));
    }
}

/// The items of a list, if there is one.
pub fn each<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Changes the value at a path, if there is one.
pub fn at(object: &mut Value, pointer: &str, change: impl FnOnce(&mut Value)) {
    if let Some(found) = object.pointer_mut(pointer) {
        change(found);
    }
}

/// Calls `change` for each value that is neither an object nor a list, with the name of its field.
pub fn change_leaves(node: &mut Value, field: &str, change: &impl Fn(&str, &mut Value)) {
    match node {
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| change_leaves(value, name, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| change_leaves(item, "", change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => change(field, node),
    }
}
