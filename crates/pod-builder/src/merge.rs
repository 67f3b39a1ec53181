//! Merges the user's overrides over the operator's defaults.
//!
//! The rules are those of Kubernetes' strategic merge, except that explicit values always override: `false`, `0` or
//! `""` replaces a default. `null` and empty objects and lists change nothing, because client libraries write them for
//! unset fields.

use crate::schema::{Field, HANDLERS, OPAQUE, Object, OneOf};
use serde_json::{Map, Value};

/// Merges `patch` over `base`, both of the type that `schema` describes.
pub(crate) fn merge(base: Value, patch: &Value, schema: &Object) -> Value {
    let mut merged = base;
    if let Some(patch) = without_empty(patch) {
        merge_value(&mut merged, patch, schema);
    }
    merged
}

/// The value without nulls, empty objects and empty lists; `None` if nothing remains.
///
/// Inside lists empty objects stay, because there they have a meaning (`emptyDir: {}`).
pub(crate) fn without_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Object(fields) => {
            let kept: Map<_, _> = content_fields(fields)
                .filter_map(|(key, value)| Some((key.clone(), without_empty(value)?)))
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(items) => Some(items.iter().map(without_nulls).collect()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            content_fields(fields).map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The fields with content: neither null nor a directive such as `$patch`.
fn content_fields(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.iter().filter(|(key, value)| !value.is_null() && !key.starts_with('$'))
}

fn merge_value(base: &mut Value, patch: Value, schema: &Object) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => merge_objects(base, patch, schema),
        (base, patch) => *base = patch,
    }
}

fn merge_objects(base: &mut Map<String, Value>, patch: Map<String, Value>, schema: &Object) {
    remove_alternatives(base, &patch, schema.one_of);
    for (key, value) in patch {
        match base.get_mut(&key) {
            Some(slot) => merge_field(slot, value, schema.field(&key)),
            None => {
                base.insert(key, value);
            }
        }
    }
}

/// Drops fields of the base that exclude those of the patch.
fn remove_alternatives(base: &mut Map<String, Value>, patch: &Map<String, Value>, one_of: OneOf) {
    let excludes = |key: &str| match one_of {
        OneOf::Nothing => false,
        OneOf::AllButName => key != "name",
        OneOf::Handlers => HANDLERS.contains(&key),
    };
    if patch.keys().any(|key| excludes(key)) {
        base.retain(|key, _| !excludes(key) || (one_of == OneOf::AllButName && patch.contains_key(key)));
    }
}

fn merge_field(slot: &mut Value, patch: Value, field: Option<&Field>) {
    match (slot, patch, field) {
        (Value::Array(base), Value::Array(patch), Some(Field::Keyed(keys, element))) => {
            *base = merge_lists(std::mem::take(base), patch, keys, element);
        }
        (slot, patch, Some(Field::Object(schema))) => merge_value(slot, patch, schema),
        (slot, patch, _) => merge_value(slot, patch, &OPAQUE),
    }
}

/// An element of a merged list and its index in the base.
struct Element {
    key: Option<Vec<Value>>,
    base_index: Option<usize>,
    value: Value,
}

fn merge_lists(base: Vec<Value>, patch: Vec<Value>, keys: &[&str], schema: &Object) -> Vec<Value> {
    let mut rest: Vec<Element> = base
        .into_iter()
        .enumerate()
        .map(|(index, value)| Element { key: key_of(&value, keys), base_index: Some(index), value })
        .collect();
    let mut patched: Vec<Element> = Vec::new();
    for value in patch {
        let key = key_of(&value, keys);
        let same = |element: &Element| key.is_some() && element.key == key;
        if let Some(earlier) = patched.iter_mut().find(|element| same(element)) {
            merge_value(&mut earlier.value, value, schema);
        } else if let Some(at) = rest.iter().position(same) {
            let mut element = rest.remove(at);
            merge_value(&mut element.value, value, schema);
            patched.push(element);
        } else {
            patched.push(Element { key, base_index: None, value });
        }
    }
    interleave(patched, rest)
}

/// The order of a strategic merge: patch elements first, but an element of the base stays before those that follow it.
fn interleave(patched: Vec<Element>, rest: Vec<Element>) -> Vec<Value> {
    let mut merged = Vec::with_capacity(patched.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for element in patched {
        while let Some(next) =
            rest.next_if(|next| element.base_index.is_some_and(|at| next.base_index < Some(at)))
        {
            merged.push(next.value);
        }
        merged.push(element.value);
    }
    merged.extend(rest.map(|element| element.value));
    merged
}

/// The values of the key fields; `None` if the first is missing. A port without a protocol is a TCP port.
fn key_of(element: &Value, keys: &[&str]) -> Option<Vec<Value>> {
    let first = element.get(keys.first()?)?;
    let others =
        keys.iter().skip(1).map(|key| element.get(key).cloned().unwrap_or_else(|| Value::from("TCP")));
    Some(std::iter::once(first.clone()).chain(others).collect())
}

#[cfg(test)]
mod tests;
