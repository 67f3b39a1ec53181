//! Objects for the tests of several modules.

use serde_json::{Value, json};
use slinky_api::v1beta1::{Controller, LoginSet};
use test_support::fixture::{object_with_spec, owner_metadata};

/// A LoginSet with all required fields; `null` in `change` removes a field.
pub fn loginset(change: &Value) -> LoginSet {
    let spec = json!({
        "controllerRef": { "name": "slurm" },
        "login": { "image": "login:26.05" },
        "initconf": { "image": "slurmd:26.05" },
        "sssdConfRef": { "name": "sssd", "key": "sssd.conf" },
    });
    object_with_spec(&owner_metadata("front"), &spec, change)
}

/// The Controller that it refers to.
pub fn controller() -> Controller {
    serde_json::from_value(json!({
        "metadata": { "name": "slurm", "namespace": "ns" },
        "spec": { "slurmKeyRef": { "name": "auth", "key": "slurm" } },
    }))
    .unwrap()
}
