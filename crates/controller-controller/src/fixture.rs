//! What the tests of several modules start from.

use crate::build::Files;
use crate::observe::Observed;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use operator_runtime::RawObject;
use serde_json::{Value, json};
use slinky_api::conditions::CONFIGURED;
use slinky_api::labels::annotations::LAST_APPLIED;
use slinky_api::v1beta1::{Accounting, Controller, ControllerStatus, NodeSet};
use std::sync::Arc;

/// A moment; tests count from it.
pub fn second(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A Controller with everything that it needs; `null` in `change` takes a field away.
pub fn controller(change: &Value) -> Controller {
    let mut spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmctld": { "image": "slurmctld:26.05" },
    });
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({
        "name": "slurm",
        "namespace": "ns",
        "uid": "u",
        "labels": { "team": "hpc" },
        "annotations": { "note": "1", LAST_APPLIED: "{}" },
    });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// The Controller with a status that says this of its configuration.
pub fn told(controller: Controller, reason: &str, message: &str, since: Timestamp) -> Controller {
    let condition = Condition {
        type_: CONFIGURED.to_owned(),
        status: if reason == "Applied" { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: None,
        last_transition_time: Time(since),
    };
    Controller { status: Some(ControllerStatus { conditions: vec![condition] }), ..controller }
}

/// Standby daemons that share a claim.
pub fn high_availability() -> Value {
    json!({ "ha": { "enabled": true }, "persistence": { "existingClaim": "shared" } })
}

/// A NodeSet of that Controller, made at `second(age)`.
pub fn node_set(name: &str, age: i64, change: &Value) -> Arc<NodeSet> {
    let mut spec = json!({ "controllerRef": { "name": "slurm" } });
    for (field, value) in change.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let metadata = json!({ "name": name, "namespace": "ns", "creationTimestamp": second(age).to_string() });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
}

/// An Accounting called `books`.
pub fn accounting(spec: &Value) -> Accounting {
    serde_json::from_value(json!({ "metadata": { "name": "books", "namespace": "ns" }, "spec": spec }))
        .unwrap()
}

/// A ConfigMap with these files.
pub fn config_map(files: &[(&str, &str)]) -> ConfigMap {
    ConfigMap { data: Some(texts(files)), ..ConfigMap::default() }
}

/// Files by name.
pub fn texts(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// A Secret with one key.
pub fn secret(key: &str, value: &str) -> Secret {
    let data = json!({ key: k8s_openapi::ByteString(value.as_bytes().to_vec()) });
    serde_json::from_value(json!({ "data": data })).unwrap()
}

/// A slurmctld pod of the Controller, with more in its metadata.
pub fn pod(ordinal: i32, ready: bool, metadata: &Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": metadata,
        "status": { "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    });
    pod["metadata"]["name"] = json!(format!("slurm-controller-{ordinal}"));
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// The StatefulSet of the Controller as the API server has it, with one pod that may be ready.
pub fn stateful_set(spec: &Value, is_ready: bool) -> RawObject<StatefulSet> {
    let owner = json!({ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Controller", "name": "slurm",
        "uid": "u", "controller": true });
    let mut set = json!({
        "metadata": { "name": "slurm-controller", "namespace": "ns", "uid": "s", "generation": 1,
            "ownerReferences": [owner] },
        "spec": { "replicas": 1, "selector": {}, "serviceName": "slurm-controller-internal", "template": {} },
        "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": i32::from(is_ready),
            "currentRevision": "a", "updateRevision": "a" },
    });
    for (field, value) in spec.as_object().unwrap() {
        set["spec"][field] = value.clone();
    }
    RawObject::new(set).unwrap()
}

/// Everything that the Controller needs is there, and nothing is made yet.
pub fn observed() -> Observed {
    Observed {
        accounting: None,
        node_sets: vec![],
        slurm_key: Ok(secret("slurm.key", "slurm")),
        jwt_key: Ok(secret("jwt.key", "jwt")),
        jwks: Ok(None),
        config_maps: Ok([].into()),
        shared_claim: Ok(None),
        service: None,
        internal_service: None,
        config: None,
        stateful_set: None,
        pods: vec![],
        active: None,
        candidate: None,
        check: None,
        pending: None,
        report: None,
    }
}

/// The Controller's slurmctld runs with these files.
pub fn running(files: &Files) -> Observed {
    Observed {
        config: Some(Arc::new(ConfigMap { data: Some(files.clone()), ..ConfigMap::default() })),
        stateful_set: Some(Arc::new(stateful_set(&json!({}), true))),
        pods: vec![pod(0, true, &json!({}))],
        ..observed()
    }
}
