//! What the tests of several modules start from.

use crate::build::{Hashes, WorkerTemplate, build_template};
use serde_json::{Value, json};
use slinky_api::labels::annotations::LAST_APPLIED;
use slinky_api::v1beta1::{Controller, NodeSet};

/// A NodeSet with everything that it needs; `null` in `change` takes a field away.
pub fn nodeset(change: &Value) -> NodeSet {
    let mut spec = json!({
        "controllerRef": { "name": "slurm" },
        "slurmd": { "image": "slurmd:26.05" },
        "logfile": { "image": "alpine:3" },
    });
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({
        "name": "gpu",
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

/// What its workers have in common.
pub fn template(nodeset: &NodeSet) -> WorkerTemplate {
    let hashes = Hashes { sshd_conf: "h1".to_owned(), sssd_conf: "h2".to_owned() };
    build_template(nodeset, &controller(), hashes, "cluster.test").unwrap()
}
