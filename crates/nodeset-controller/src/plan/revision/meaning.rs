//! Whether two revisions say the same.
//!
//! Programs differ in what they write for things that nobody said: nothing, `null`, or an empty text, list or object; and
//! some write no zeros where those are the default. Quantities have many forms. None of that changes a pod.

use pod_builder::{Quantity, says_nothing_when_empty};
use serde_json::Value;

/// Objects whose keys the user chose: an empty text is a value there.
const MAPS: &[&str] =
    &["annotations", "labels", "matchLabels", "nodeSelector", "options", "volumeAttributes"];

/// Objects of quantities, and quantities.
const QUANTITIES: &[&str] = &["limits", "overhead", "requests"];
const QUANTITY: &[&str] = &["divisor", "sizeLimit"];

/// Parts of a NodeSet that say nothing when they are empty.
const PARTS: &[&str] = &["logfile", "slurmd", "spec", "template"];

/// Fields for which an empty text is not the same as none.
const TEXT_THAT_COUNTS: &[&str] = &["storageClassName"];

/// Fields for which zero, or `false`, is the same as nothing. For all others it may override a default.
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

/// How a part of a stored revision is to be put back; of no meaning for a pod.
const DIRECTIVE: &str = "$patch";

/// Whether two revisions say the same.
pub fn is_equivalent(one: &Value, other: &Value) -> bool {
    one == other || canonical(one) == canonical(other)
}

fn canonical(value: &Value) -> Value {
    let mut value = value.clone();
    simplify("", &mut value);
    value
}

/// Drops what says nothing from the value of a field.
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
            members.retain(|key, value| if is_map { !value.is_null() } else { !says_nothing(key, value) });
            if members.keys().all(|key| key == DIRECTIVE) {
                members.clear();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| simplify("", item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `1`, `"1"` and `"1000m"` are one quantity.
fn simplify_quantity(value: &mut Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Ok(quantity) = text.parse::<Quantity>() {
        *value = Value::from(quantity.nanos().to_string());
    }
}

fn says_nothing(field: &str, value: &Value) -> bool {
    let is_zero_by_default = ZERO_BY_DEFAULT.contains(&field);
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag && is_zero_by_default,
        Value::Number(number) => number.as_i64() == Some(0) && is_zero_by_default,
        Value::String(text) if text.is_empty() => !TEXT_THAT_COUNTS.contains(&field),
        Value::String(text) => text == "0" && is_zero_by_default,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => {
            members.is_empty() && (PARTS.contains(&field) || says_nothing_when_empty(field))
        }
    }
}

#[cfg(test)]
mod tests;
