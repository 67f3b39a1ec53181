//! Pod specs and containers as Kubernetes' Go types serialize them: empty fields are omitted, required ones are present.
//!
//! Unknown fields stay, since they reach the pods. A field with `omitempty` that is no pointer is omitted when it is zero,
//! even if the user wrote the zero.

use pod_builder::Quantity;
use serde_json::{Map, Value, json};

/// Strings that are kept when they are empty. Kubernetes omits an empty `subdomain`, but here it removes our default.
const MEANINGFUL_WHEN_EMPTY: &[&str] =
    &["runtimeClassName", "service", "storageClassName", "subdomain", "type"];
/// Booleans for which false equals absence. Others are pointers and have a third state.
const OFF_WHEN_ABSENT: &[&str] =
    &["hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty"];
/// Numbers for which zero equals absence.
const ZERO_WHEN_ABSENT: &[&str] = &[
    "failureThreshold",
    "hostPort",
    "initialDelaySeconds",
    "periodSeconds",
    "successThreshold",
    "timeoutSeconds",
];
/// Objects with arbitrary keys.
const MAPS: &[&str] =
    &["annotations", "labels", "matchLabels", "nodeSelector", "options", "volumeAttributes"];
/// Objects whose values are quantities.
const QUANTITIES: &[&str] = &["limits", "overhead", "requests"];

const NANO: i128 = 1_000_000_000;
const BINARY_UNITS: &[&str] = &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const UNITS: &[&str] = &["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const EXPONENTS: &[&str] = &["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"];

/// The canonical form of a pod spec.
pub fn pod_spec(written: &Value) -> Value {
    let mut fields = fields(written);
    let containers = written.get("containers").filter(|list| list.is_array());
    fields.insert("containers".to_owned(), containers.map_or(Value::Null, |list| items("containers", list)));
    Value::Object(fields)
}

/// The canonical form of a container.
pub fn container(written: &Value) -> Map<String, Value> {
    let mut fields = fields(written);
    require(&mut fields, "name", json!(""));
    require(&mut fields, "resources", json!({}));
    fields
}

/// Whether an object has no field in canonical form, apart from empty `resources`.
pub fn is_empty(written: &Value) -> bool {
    let mut fields = fields(written);
    fields.retain(|key, value| !(key == "resources" && *value == json!({})));
    fields.is_empty()
}

fn fields(written: &Value) -> Map<String, Value> {
    let fields = written.as_object().into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), field(key, value)?))).collect()
}

fn require(fields: &mut Map<String, Value>, key: &str, value: Value) {
    fields.entry(key).or_insert(value);
}

/// The canonical value of a field; `None` if it is omitted.
fn field(key: &str, value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(false) if OFF_WHEN_ABSENT.contains(&key) => None,
        Value::Number(number) if number.as_i64() == Some(0) && ZERO_WHEN_ABSENT.contains(&key) => None,
        Value::String(text) if text.is_empty() && !MEANINGFUL_WHEN_EMPTY.contains(&key) => None,
        Value::String(_) | Value::Number(_) if matches!(key, "divisor" | "sizeLimit") => {
            Some(quantity(value))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
        Value::Array(list) => (!list.is_empty()).then(|| items(key, value)),
        Value::Object(map) if MAPS.contains(&key) => (!map.is_empty()).then(|| value.clone()),
        Value::Object(map) if QUANTITIES.contains(&key) => {
            let map: Map<_, _> = map.iter().map(|(key, value)| (key.clone(), quantity(value))).collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        Value::Object(_) => Some(object(key, value)),
    }
}

fn object(key: &str, value: &Value) -> Value {
    let mut fields = fields(value);
    match key {
        "resourceFieldRef" => require(&mut fields, "divisor", json!("0")),
        "volumeClaimTemplate" => {
            require(&mut fields, "metadata", json!({}));
            require(&mut fields, "spec", json!({}));
            if let Some(Value::Object(spec)) = fields.get_mut("spec") {
                require(spec, "resources", json!({}));
            }
        }
        _ => {}
    }
    Value::Object(fields)
}

fn items(key: &str, list: &Value) -> Value {
    let is_container = matches!(key, "containers" | "ephemeralContainers" | "initContainers");
    let item = |item: &Value| match item {
        Value::Object(_) if is_container => Value::Object(container(item)),
        Value::Object(_) => Value::Object(fields(item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => item.clone(),
    };
    list.as_array().into_iter().flatten().map(item).collect()
}

/// A quantity in canonical form: no fraction, and the largest unit that allows it. Other values are unchanged.
fn quantity(value: &Value) -> Value {
    let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
    let Ok(amount) = text.parse::<Quantity>() else { return value.clone() };
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let is_whole = amount.nanos() % NANO == 0;
    let text = if unit.ends_with('i') && is_whole && amount.nanos().abs() >= 1024 * NANO {
        let (number, power) = reduced(amount.ceil(), 1024, BINARY_UNITS.len());
        format!("{number}{}", BINARY_UNITS[power])
    } else {
        let (number, power) = reduced(amount.nanos(), 1000, UNITS.len());
        let is_exponent = unit.len() > 1 && unit.starts_with(['e', 'E']);
        let units = if is_exponent { EXPONENTS } else { UNITS };
        if number == 0 { "0".to_owned() } else { format!("{number}{}", units[power]) }
    };
    Value::String(text)
}

/// Divides a number by a base while there is a larger unit and no remainder; returns the rest and the exponent.
fn reduced(mut number: i128, base: i128, units: usize) -> (i128, usize) {
    let mut power = 0;
    while power + 1 < units && number != 0 && number % base == 0 {
        number /= base;
        power += 1;
    }
    (number, power)
}
