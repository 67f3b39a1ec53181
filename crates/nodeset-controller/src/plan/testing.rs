//! Worker pods for tests.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

/// This many minutes after the time origin of the tests.
pub fn minute(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(28_000_000 + minute)
}

/// An available worker pod: with ordinal, bound, running and ready. `null` in `change` removes a field.
pub fn pod(name: &str, change: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": format!("uid-{name}"),
            "resourceVersion": "1",
            "creationTimestamp": minute(0),
            "labels": { "nodeset.slinky.slurm.net/scaling-mode": "StatefulSet" },
        },
        "spec": { "containers": [], "nodeName": "node-a", "hostname": name },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": minute(0) }],
        },
    });
    merge(&mut pod, change);
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// JSON merge patch (RFC 7396).
pub fn merge(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let members = value.as_object_mut().unwrap();
    for (key, change) in change {
        if change.is_null() {
            members.remove(key);
        } else {
            merge(members.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
}
