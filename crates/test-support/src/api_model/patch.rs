//! What the bodies of patches do to an object.

use super::ownership::Shape;
use serde_json::{Map, Value};

/// Names the members that leave a set of plain values, before the name of its field.
const DELETE_MEMBERS: &str = "$deleteFromPrimitiveList/";

/// A change of an object, in one of the languages for that.
pub(super) enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists that have keys are merged by them.
    Strategic(Value),
    /// RFC 6902.
    Json(json_patch::Patch),
}

impl Patch {
    pub fn change(self, object: &mut Value) -> Result<(), json_patch::PatchError> {
        match self {
            Self::Merge(patch) => json_patch::merge(object, &patch),
            Self::Strategic(patch) => merge_by_shape(object, patch, false),
            Self::Json(patch) => json_patch::patch(object, &patch)?,
        }
        Ok(())
    }
}

/// The merge of a server-side apply, which also knows items that are never merged themselves.
pub(super) fn overlay(target: &mut Value, config: Value) {
    merge_by_shape(target, config, true);
}

fn merge_by_shape(target: &mut Value, patch: Value, knows_atoms: bool) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    let fields = object_of(target);
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_MEMBERS) {
            if let (Some(Value::Array(members)), Value::Array(leaving)) = (fields.get_mut(list), value) {
                members.retain(|member| !leaving.contains(member));
            }
        } else if value.is_null() {
            fields.remove(&name);
        } else {
            let shape = Shape::of_field(&name);
            let field = fields.entry(name).or_insert(Value::Null);
            match (shape, value) {
                (Shape::Atoms(key), Value::Array(items)) => {
                    merge_items(array_of(field), key, items, knows_atoms);
                }
                (Shape::Items(key), Value::Array(items)) => merge_items(array_of(field), key, items, false),
                (Shape::Set, Value::Array(members)) => {
                    let field = array_of(field);
                    let new: Vec<Value> = members.into_iter().filter(|new| !field.contains(new)).collect();
                    field.extend(new);
                }
                (_, value) => merge_by_shape(field, value, knows_atoms),
            }
        }
    }
}

fn merge_items(list: &mut Vec<Value>, key: &str, items: Vec<Value>, are_atoms: bool) {
    for item in items {
        let position = list.iter().position(|old| old[key] == item[key]);
        match (item.get("$patch").and_then(Value::as_str), position) {
            (Some("delete"), Some(position)) => drop(list.remove(position)),
            (Some("delete"), None) => {}
            (_, Some(position)) if are_atoms => list[position] = item,
            (_, Some(position)) => merge_by_shape(&mut list[position], item, are_atoms),
            (_, None) => list.push(item),
        }
    }
}

/// Leaves out what a typed decoder takes for absent.
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

/// The value as an object; whatever else it was is gone.
fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made one")
}

fn array_of(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("it was made one")
}
