//! Applies the body of a patch to an object.

use super::ownership::Shape;
use serde_json::{Map, Value};

/// Prefix of a field name: its value lists the members to remove from a set of primitive values.
const DELETE_MEMBERS: &str = "$deleteFromPrimitiveList/";

/// A patch in one of the supported formats.
pub(super) enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own format: lists with a merge key are merged by it.
    Strategic(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
}

impl Patch {
    pub fn apply_to(self, object: &mut Value) -> Result<(), json_patch::PatchError> {
        match self {
            Self::Merge(patch) => json_patch::merge(object, &patch),
            Self::Strategic(patch) => merge_by_shape(object, patch, false),
            Self::Json(patch) => json_patch::patch(object, &patch)?,
        }
        Ok(())
    }
}

/// The merge of a server-side apply, which unlike a strategic patch replaces atomic list items as a whole.
pub(super) fn merge_applied(target: &mut Value, config: Value) {
    merge_by_shape(target, config, true);
}

fn merge_by_shape(target: &mut Value, patch: Value, has_atomic_items: bool) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    let fields = as_object(target);
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_MEMBERS) {
            if let (Some(Value::Array(members)), Value::Array(removed)) = (fields.get_mut(list), value) {
                members.retain(|member| !removed.contains(member));
            }
        } else if value.is_null() {
            fields.remove(&name);
        } else {
            let shape = Shape::of_field(&name);
            let field = fields.entry(name).or_insert(Value::Null);
            match (shape, value) {
                (Shape::AtomicItems(key), Value::Array(items)) => {
                    merge_items(as_array(field), key, items, has_atomic_items);
                }
                (Shape::Items(key), Value::Array(items)) => merge_items(as_array(field), key, items, false),
                (Shape::Set, Value::Array(members)) => {
                    let field = as_array(field);
                    let new: Vec<Value> = members.into_iter().filter(|new| !field.contains(new)).collect();
                    field.extend(new);
                }
                (_, value) => merge_by_shape(field, value, has_atomic_items),
            }
        }
    }
}

fn merge_items(list: &mut Vec<Value>, key: &str, items: Vec<Value>, are_atomic: bool) {
    for item in items {
        let position = list.iter().position(|old| old[key] == item[key]);
        match (item.get("$patch").and_then(Value::as_str), position) {
            (Some("delete"), Some(position)) => drop(list.remove(position)),
            (Some("delete"), None) => {}
            (_, Some(position)) if are_atomic => list[position] = item,
            (_, Some(position)) => merge_by_shape(&mut list[position], item, are_atomic),
            (_, None) => list.push(item),
        }
    }
}

/// Removes fields that are null, which a typed decoder treats as absent.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The value as an object; a value of another type is replaced by an empty object.
fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("replaced if not an object")
}

fn as_array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("replaced if not an array")
}
