//! Compares pod templates by meaning, so that a difference without effect restarts no pods.

use crate::parts::{SCRIPT_CONTAINERS, SCRIPT_MARK};
use crate::quantity::Quantity;
use crate::schema::{Field, OPAQUE, Object, Plain, TEMPLATE};
use serde_json::{Map, Value};
use slinky_api::labels::annotations;

/// Set by `kubectl rollout restart`. Removing it would restart the pods again.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Labels with the version of the Helm chart that a custom resource is from. The pods get the labels of their custom
/// resource, and a new version of the chart alone must not restart them.
const CHART_LABELS: [&str; 2] = ["helm.sh/chart", "app.kubernetes.io/version"];

/// Fields whose empty object means the same as none. Elsewhere it does not: an empty selector selects everything.
const NO_OP_WHEN_EMPTY: &[&str] = &[
    "affinity",
    "annotations",
    "capabilities",
    "dnsConfig",
    "labels",
    "lifecycle",
    "limits",
    "metadata",
    "nodeAffinity",
    "nodeSelector",
    "podAffinity",
    "podAntiAffinity",
    "requests",
    "resources",
    "securityContext",
];

/// Whether an empty object in this field means the same as none.
pub fn says_nothing_when_empty(field: &str) -> bool {
    NO_OP_WHEN_EMPTY.contains(&field)
}

/// The last writer of the live template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastWriter {
    /// This operator, in any version.
    Us,
    /// Another operator, which this one replaces.
    Another,
}

/// Whether both templates result in the same pods.
///
/// Ignores defaults set by the API server, the version of the chart, and the text of the operator's own scripts: that of another version of this
/// operator, or, if [`LastWriter::Another`] wrote the template, that of the other operator.
pub fn same_template(live: &Value, desired: &Value, last_writer: LastWriter) -> bool {
    let (mut live, mut desired) = (canonical(live), canonical(desired));
    equalise_scripts(&mut live, &mut desired, last_writer);
    live == desired
}

fn canonical(template: &Value) -> Value {
    let mut value = template.clone();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.retain(|key, _| key != RESTARTED_AT && key != annotations::LAST_APPLIED);
        }
        if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
            labels.retain(|key, _| !CHART_LABELS.contains(&key.as_str()));
        }
    }
    if let Some(Value::Object(spec)) = value.get_mut("spec") {
        remove_dependent_defaults(spec);
    }
    simplify(&mut value, &TEMPLATE);
    value
}

/// Removes defaults that depend on other fields.
fn remove_dependent_defaults(spec: &mut Map<String, Value>) {
    if spec.get("serviceAccount") == spec.get("serviceAccountName") {
        spec.remove("serviceAccount");
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for key in ["containers", "initContainers"] {
        for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            let Value::Object(container) = container else { continue };
            let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
            if container.get("imagePullPolicy").is_some_and(|policy| policy == default_pull_policy(image)) {
                container.remove("imagePullPolicy");
            }
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(port) = port
                    && host_network
                    && port.get("hostPort") == port.get("containerPort")
                {
                    port.remove("hostPort");
                }
            }
        }
    }
}

/// An image without tag and digest has the tag `latest`.
fn default_pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    if latest { "Always" } else { "IfNotPresent" }
}

/// Drops fields without effect: empty values and defaults.
fn simplify(value: &mut Value, schema: &Object) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields.iter_mut() {
        match schema.field(key) {
            Some(Field::Object(schema)) => simplify(value, schema),
            Some(Field::Keyed(_, schema) | Field::Atomic(schema)) => simplify_items(value, schema),
            Some(Field::Quantity) => simplify_quantity(value),
            Some(Field::Quantities) => {
                value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(simplify_quantity);
            }
            None if value.is_array() => simplify_items(value, &OPAQUE),
            None => simplify(value, &OPAQUE),
        }
    }
    fields.retain(|key, value| !is_no_op(key, value) && !is_default(key, value, schema));
}

fn simplify_items(list: &mut Value, schema: &Object) {
    list.as_array_mut().into_iter().flatten().for_each(|item| simplify(item, schema));
}

/// `1`, `"1"` and `"1000m"` are the same quantity.
fn simplify_quantity(value: &mut Value) {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Ok(quantity) = text.parse::<Quantity>() {
        *value = Value::String(quantity.nanos().to_string());
    }
}

fn is_no_op(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && says_nothing_when_empty(key),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_default(key: &str, value: &Value, schema: &Object) -> bool {
    schema.defaults.iter().any(|(field, default)| {
        *field == key
            && match default {
                Plain::Text(text) => value == text,
                Plain::Number(number) => value == number,
                Plain::Flag(flag) => value == flag,
            }
    })
}

/// Makes the scripts equal if their difference is to be ignored.
fn equalise_scripts(live: &mut Value, desired: &mut Value, last_writer: LastWriter) {
    for name in SCRIPT_CONTAINERS {
        let (Some(running), Some(ours)) = (script(live, name), script(desired, name)) else { continue };
        let is_change = !is_ours(ours) || (!is_ours(running) && last_writer == LastWriter::Us);
        if !is_change {
            ours.clone_into(running);
        }
    }
}

fn is_ours(script: &str) -> bool {
    script.starts_with(SCRIPT_MARK)
}

/// The script in a container's `sh -c` command.
fn script<'a>(template: &'a mut Value, container: &str) -> Option<&'a mut String> {
    let containers = template.pointer_mut("/spec/initContainers")?.as_array_mut()?;
    let container = containers.iter_mut().find(|candidate| candidate["name"] == container)?;
    match container.get_mut("command")?.as_array_mut()?.as_mut_slice() {
        [.., flag, Value::String(script)] if flag == "-c" => Some(script),
        _ => None,
    }
}
