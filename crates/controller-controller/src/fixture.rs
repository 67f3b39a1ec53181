//! Objects that the tests of several modules start from.

use crate::active::Poll;
use crate::build::{Contents, Files, Reconfiguration, RefusedNodeSets};
use crate::observe::Observed;
use crate::plan::{ConfigPlan, Confirmation, Decision};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use operator_runtime::RawObject;
use serde_json::{Value, json};
use slinky_api::conditions::CONFIGURED;
use slinky_api::labels::annotations::RECONFIGURATION;
use slinky_api::v1beta1::{Accounting, Controller, ControllerStatus, NodeSet};
use std::sync::Arc;
use std::time::Duration;
use test_support::fixture::{object_with_spec, owner_metadata};

/// The delay of configuration changes.
pub const DELAY: Duration = Duration::from_secs(5);
/// The hash of a configuration, and the part of it that messages show.
pub const CONFIG: &str = "0123456789abcdef";
pub const SHOWN: &str = "0123456789ab";
/// The hash of another configuration.
pub const CANDIDATE: &str = "ba9876543210fedc";

/// A time; tests count seconds from a fixed start.
pub fn second(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A Controller with all required fields; `null` in `change` removes a field.
pub fn controller(change: &Value) -> Controller {
    let spec = json!({
        "slurmKeyRef": { "name": "auth", "key": "slurm.key" },
        "jwtKeyRef": { "name": "tokens", "key": "jwt.key" },
        "slurmctld": { "image": "slurmctld:26.05" },
    });
    object_with_spec(&owner_metadata("slurm"), &spec, change)
}

/// The Controller with this condition `Configured`.
pub fn with_configured(controller: Controller, reason: &str, message: &str, since: Timestamp) -> Controller {
    let condition = Condition {
        type_: CONFIGURED.to_owned(),
        status: if reason == "Applied" { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: None,
        last_transition_time: Time(since),
    };
    Controller {
        status: Some(ControllerStatus { conditions: vec![condition], ..ControllerStatus::default() }),
        ..controller
    }
}

/// Fields of a spec with standby daemons that share a PersistentVolumeClaim.
pub fn high_availability() -> Value {
    json!({ "ha": { "enabled": true }, "persistence": { "existingClaim": "shared" } })
}

/// A NodeSet of that Controller, created at `second(age)`.
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

/// Files of the user by name.
pub fn contents(files: &[(&str, &str)]) -> Contents {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
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

/// The live StatefulSet of the Controller, with one pod that may be ready.
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

/// A Controller whose references exist and that has no children yet.
pub fn observed(change: &Value) -> Observed {
    Observed {
        controller: Arc::new(controller(change)),
        reconfigure_delay: DELAY,
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
        poll: Poll::default(),
        candidate: None,
        check: None,
        pending: None,
        refusals: RefusedNodeSets::new(),
        report: None,
        crash_loop: None,
        service_monitor: Ok(None),
    }
}

/// A Controller whose slurmctld runs with these files.
pub fn running(change: &Value, files: &Files) -> Observed {
    Observed {
        config: Some(Arc::new(ConfigMap { data: Some(files.clone()), ..ConfigMap::default() })),
        stateful_set: Some(Arc::new(stateful_set(&json!({}), true))),
        pods: vec![pod(0, true, &json!({}))],
        ..observed(change)
    }
}

/// The state in which the ConfigMap has this record.
pub fn with_record(mut observed: Observed, record: &Reconfiguration) -> Observed {
    let config = Arc::make_mut(observed.config.as_mut().unwrap());
    let value = (RECONFIGURATION.to_owned(), record.to_annotation());
    config.metadata.annotations = Some([value].into());
    observed
}

/// The decisions about a configuration without findings.
pub fn config_plan(decision: Decision, confirmation: Option<Confirmation>) -> ConfigPlan {
    ConfigPlan {
        decision,
        hash: CONFIG.to_owned(),
        candidate: CANDIDATE.to_owned(),
        unchecked: None,
        confirmation,
        refused_node_sets: vec![],
        ignored_name: None,
        warnings: vec![],
    }
}
