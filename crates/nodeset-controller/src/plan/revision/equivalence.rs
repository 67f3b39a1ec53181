//! Whether two revisions result in the same pods.
//!
//! Serializers differ in how they write unset fields: omitted, `null`, or an empty string, list or object; some omit
//! zeros that are the default. Quantities have many forms. None of that changes a pod.

use pod_builder::{Quantity, says_nothing_when_empty};
use serde_json::Value;

/// Objects with user-defined keys, where an empty string is a value.
const MAPS: &[&str] =
    &["annotations", "labels", "matchLabels", "nodeSelector", "options", "volumeAttributes"];

/// Objects of quantities, and single quantities.
const QUANTITIES: &[&str] = &["limits", "overhead", "requests"];
const QUANTITY: &[&str] = &["divisor", "sizeLimit"];

/// Objects of a NodeSet that mean the same empty or unset.
const PARTS: &[&str] = &["logfile", "slurmd", "spec", "template"];

/// Fields for which an empty string differs from unset.
const SIGNIFICANT_EMPTY_STRING: &[&str] = &["storageClassName"];

/// Fields for which zero or `false` is the default. In all others it may override another default.
const ZERO_BY_DEFAULT: &[&str] = &[
    "divisor",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "ordinalPadding",
    "oversubscribeNode",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
];

/// Strategic merge patch directive of stored revisions, without meaning for a pod.
const DIRECTIVE: &str = "$patch";

/// Whether two revisions result in the same pods.
pub fn is_equivalent(one: &Value, other: &Value) -> bool {
    one == other || canonical(one) == canonical(other)
}

fn canonical(value: &Value) -> Value {
    let mut value = value.clone();
    simplify("", &mut value);
    value
}

/// Removes members without meaning from the value of a field.
fn simplify(field: &str, value: &mut Value) {
    match value {
        Value::Object(members) => {
            let is_map = MAPS.contains(&field);
            for (key, value) in members.iter_mut().filter(|_| !is_map) {
                if QUANTITIES.contains(&field) || QUANTITY.contains(&key.as_str()) {
                    simplify_quantity(value);
                } else {
                    simplify(key, value);
                }
            }
            members.retain(|key, value| if is_map { !value.is_null() } else { !is_meaningless(key, value) });
            if members.keys().all(|key| key == DIRECTIVE) {
                members.clear();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| simplify("", item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `1`, `"1"` and `"1000m"` are the same quantity.
fn simplify_quantity(value: &mut Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Ok(quantity) = text.parse::<Quantity>() {
        *value = Value::from(quantity.nanos().to_string());
    }
}

/// Whether a field with this value means the same as an unset field.
fn is_meaningless(field: &str, value: &Value) -> bool {
    let is_zero_by_default = ZERO_BY_DEFAULT.contains(&field);
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag && is_zero_by_default,
        Value::Number(number) => number.as_i64() == Some(0) && is_zero_by_default,
        Value::String(text) if text.is_empty() => !SIGNIFICANT_EMPTY_STRING.contains(&field),
        Value::String(text) => text == "0" && is_zero_by_default,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => {
            members.is_empty() && (PARTS.contains(&field) || says_nothing_when_empty(field))
        }
    }
}

#[cfg(test)]
mod tests;
