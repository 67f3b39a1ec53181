#![allow(dead_code, unused, missing_docs, reason = "temporary")]
mod execute;
mod slurm;
mod worker;
mod plan {
    pub mod effect;
    pub fn is_foreign(reason: &str) -> bool { !reason.is_empty() && !reason.starts_with("slurm-operator: ") }
    pub use effect::{Drain, Effect, Evidence, NewPod, NodeMirror, PodMirror, Removal, Undo, Why};
}
#[cfg(test)]
mod fixture {
    use serde_json::{Value, json};
    use slinky_api::v1beta1::{Controller, NodeSet};
    pub fn nodeset(_: &Value) -> NodeSet {
        serde_json::from_value(json!({ "metadata": {"name": "gpu", "namespace": "ns", "uid": "u"}, "spec": {"controllerRef": { "name": "slurm" }, "slurmd": { "image": "slurmd:26.05" }, "logfile": { "image": "alpine:3" } } })).unwrap()
    }
    pub fn controller() -> Controller {
        serde_json::from_value(json!({ "metadata": { "name": "slurm", "namespace": "ns" }, "spec": { "slurmKeyRef": { "name": "auth", "key": "slurm" } } })).unwrap()
    }
}
const NAME: &str = "nodeset-controller";
fn main() {}
