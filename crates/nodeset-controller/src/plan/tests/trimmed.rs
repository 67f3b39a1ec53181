//! Fields that caches trim do not change any decision, and are most of the objects' size.

use super::properties::{case, fixture};
use crate::build::build_numbered_pod;
use crate::cache::{NodeCache, trim_claim, trim_pod, trim_revision};
use crate::fixture::{nodeset, template};
use crate::node_facts::NodeFacts;
use crate::plan::daemons::target_of;
use crate::plan::fixture::Fixture;
use crate::worker::Worker;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use proptest::prelude::*;
use rstest::rstest;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

fn managed() -> Value {
    json!([{ "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": { "f:metadata": { "f:labels": { "x".repeat(500): {} } } } }])
}

fn container(name: &str, state: &Value) -> Value {
    json!({ "name": name, "image": "registry.example/slurmd:26.05", "imageID": "x".repeat(500), "ready": true,
        "restartCount": 2, "state": state, "lastState": { "terminated": { "exitCode": 1 } },
        "volumeMounts": [{ "name": "slurm-etc", "mountPath": "/etc/slurm" }], "resources": { "limits": { "cpu": "2" } } })
}

/// A pod as created by the operator, with the fields that kubelet and API server add.
fn full_pod(pin: Option<&str>) -> Pod {
    let change = json!({ "slurmd": { "env": [{ "name": "BIG", "value": "x".repeat(5000) }] },
        "template": { "spec": { "volumes": [{ "name": "v", "configMap": { "name": "c" } }] } } });
    let nodeset = nodeset(&change);
    let mut pod = build_numbered_pod(&template(&nodeset), &nodeset, 7, "h", pin).unwrap();
    pod["metadata"]["uid"] = json!("u-7");
    pod["metadata"]["managedFields"] = managed();
    pod["metadata"]["annotations"]["nodeset.slinky.slurm.net/pod-deadline"] = json!("2030-01-01T00:00:00Z");
    pod["spec"]["nodeName"] = if pin.is_some() { json!("") } else { json!("node-a") };
    let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z" });
    pod["status"] = json!({
        "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }],
        "conditions": [condition("Ready"), condition("PodScheduled"), condition("SlurmNodeStateMixed")],
        "containerStatuses": [container("slurmd", &json!({ "running": { "startedAt": "2030-01-01T00:00:00Z" } }))],
        "initContainerStatuses": [container("logfile", &json!({ "running": {} }))],
    });
    serde_json::from_value(pod).unwrap()
}

fn size(object: &impl Serialize) -> usize {
    serde_json::to_vec(object).unwrap().len()
}

/// All fields of a pod that decisions depend on.
fn parsed(pod: &Pod) -> String {
    let worker = Worker::new(Arc::new(pod.clone()));
    let reference = worker.reference();
    format!("{:?} {reference:?} {:?}", Worker { pod: Arc::default(), ..worker }, target_of(pod))
}

#[rstest]
#[case::bound(None)]
#[case::created_for_a_node(Some("node-b"))]
fn trimmed_pod_is_small_and_parses_the_same(#[case] pin: Option<&str>) {
    let full = full_pod(pin);
    let mut kept = full.clone();
    trim_pod(&mut kept);
    assert_eq!(parsed(&kept), parsed(&full));
    assert_eq!(target_of(&kept), Some(pin.unwrap_or("node-a")));
    assert!(size(&full) > 8_000 && size(&kept) < 2_500, "{} of {} bytes", size(&kept), size(&full));
}

#[test]
fn trimmed_kubernetes_node_is_small_and_parses_the_same() {
    let images: Vec<_> =
        (0..50).map(|number| json!({ "names": [format!("registry.example/image:{number}")] })).collect();
    let full: Node = serde_json::from_value(json!({
        "metadata": { "name": "node-a", "labels": { "gpu": "yes" }, "managedFields": managed(),
            "annotations": { "topology.slinky.slurm.net/spec": "b0" } },
        "spec": { "unschedulable": true, "taints": [{ "key": "k", "effect": "NoSchedule" }] },
        "status": { "images": images, "capacity": { "cpu": "64" }, "addresses": [{ "type": "Hostname", "address": "a" }],
            "conditions": [{ "type": "DiskPressure", "status": "True", "reason": "r", "message": "m" }] },
    }))
    .unwrap();
    let mut kept = full.clone();
    NodeCache::trim(&mut kept);
    let facts = |node: &Node| NodeFacts::new(node, &["DiskPressure".to_owned()]);
    assert_eq!(facts(&kept), facts(&full));
    assert_eq!(facts(&kept).conditions.len(), 1);
    assert!(size(&kept) < size(&full) / 5, "{} of {} bytes", size(&kept), size(&full));
}

#[test]
fn trimmed_claim_keeps_only_metadata() {
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "gpu-0", "uid": "p", "controller": true });
    let metadata = json!({ "name": "data-gpu-0", "uid": "c", "resourceVersion": "4", "ownerReferences": [owner],
        "labels": { "app.kubernetes.io/instance": "gpu" } });
    let mut full = metadata.clone();
    full["managedFields"] = managed();
    let mut claim: PersistentVolumeClaim = serde_json::from_value(
        json!({ "metadata": full, "spec": { "volumeName": "v" }, "status": { "phase": "Bound" } }),
    )
    .unwrap();
    trim_claim(&mut claim);
    assert_eq!(
        json!(claim),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata })
    );
}

#[rstest]
#[case::ours("NodeSet", true)]
#[case::another_workload("DaemonSet", false)]
fn only_revisions_of_nodesets_keep_their_data(#[case] kind: &str, #[case] kept: bool) {
    let owner = json!({ "apiVersion": "x/v1", "kind": kind, "name": "n", "uid": "u", "controller": true });
    let mut revision: ControllerRevision = serde_json::from_value(json!({
        "metadata": { "name": "n-1", "ownerReferences": [owner], "managedFields": managed() },
        "revision": 3, "data": { "spec": {} },
    }))
    .unwrap();
    trim_revision(&mut revision);
    assert_eq!((revision.data.is_some(), revision.revision), (kept, 3));
    assert_eq!(revision.metadata.managed_fields, None);
}

#[test]
fn orphaned_revision_keeps_its_data_for_adoption() {
    let mut revision: ControllerRevision = serde_json::from_value(
        json!({ "metadata": { "name": "n-1" }, "revision": 3, "data": { "spec": {} } }),
    )
    .unwrap();
    trim_revision(&mut revision);
    assert!(revision.data.is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn trimmed_fields_do_not_change_the_plan(replicas in 0usize..6, cases in prop::collection::vec(case(), 0..6)) {
        let mut fixture = fixture(replicas, 1, &cases);
        let summary = |fixture: &Fixture| {
            let plan = fixture.plan();
            format!("{:?} {:?} {:?} {:?}", plan.effects, plan.pod_mirrors, plan.node_mirrors, plan.waiting)
        };
        let before = summary(&fixture);
        fixture.observed.pods.iter_mut().for_each(|pod| trim_pod(Arc::make_mut(pod)));
        prop_assert_eq!(before, summary(&fixture));
    }
}
