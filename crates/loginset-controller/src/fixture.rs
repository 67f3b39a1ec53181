//! What the tests of several modules start from.

use serde_json::{Value, json};
use slinky_api::labels::annotations::LAST_APPLIED;
use slinky_api::v1beta1::{Controller, LoginSet};

/// A LoginSet with everything that it needs; `null` in `change` takes a field away.
pub fn loginset(change: &Value) -> LoginSet {
    let mut spec = json!({
        "controllerRef": { "name": "slurm" },
        "login": { "image": "login:26.05" },
        "initconf": { "image": "slurmd:26.05" },
        "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
    });
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({
        "name": "front",
        "namespace": "ns",
        "uid": "u",
        "labels": { "team": "hpc" },
        "annotations": { "note": "1", LAST_APPLIED: "{}" },
    });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// The Controller that it refers to.
pub fn controller() -> Controller {
    serde_json::from_value(json!({
        "metadata": { "name": "slurm", "namespace": "ns" },
        "spec": { "slurmKeyRef": { "name": "auth", "key": "slurm" } },
    }))
    .unwrap()
}
