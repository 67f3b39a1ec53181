//! Mirrors between pods and Slurm nodes.

use crate::plan::fixture::Fixture;
use crate::plan::testing::{merge, minute};
use crate::plan::{NodeMirror, PodMirror};
use crate::slurm::View;
use rstest::rstest;
use serde_json::{Value, json};
use slurm_rest::{Deadline, NodeUpdate};
use std::collections::BTreeMap;

const PROTECT: &str = "nodeset.slinky.slurm.net/pod-protect";
const DEADLINE: &str = "nodeset.slinky.slurm.net/pod-deadline";
const TOPOLOGY: &str = "topology.slinky.slurm.net/spec";

/// A worker with up-to-date labels that mirrors an idle Slurm node, with this changed.
fn idle(change: &Value) -> Value {
    let mut pod = with_states(&["Idle"]);
    merge(&mut pod, change);
    pod
}

/// A worker with up-to-date labels that mirrors these states.
fn with_states(states: &[&str]) -> Value {
    let mut conditions = vec![json!({ "type": "Ready", "status": "True", "lastTransitionTime": minute(0) })];
    conditions.extend(states.iter().map(|state| {
        json!({ "type": format!("SlurmNodeState{state}"), "status": "True", "lastTransitionTime": minute(5) })
    }));
    json!({
        "metadata": { "labels": { "nodeset.slinky.slurm.net/pod-name": "gpu-0",
            "nodeset.slinky.slurm.net/pod-index": "0" }, "annotations": { TOPOLOGY: "" } },
        "status": { "conditions": conditions },
    })
}

/// This worker, and its Slurm node with an up-to-date comment, with this changed.
fn fixture(spec: &Value, pod: &Value, node: &Value) -> Fixture {
    let mut full_spec = json!({ "replicas": 1 });
    merge(&mut full_spec, spec);
    let comment = json!({ "namespace": "ns", "podName": "gpu-0", "node": "node-a", "nodeSetName": "gpu",
        "nodeSetUID": "u" });
    let mut full_node =
        json!({ "name": "gpu-0", "state": ["IDLE"], "comment": comment.to_string(), "topology": "" });
    merge(&mut full_node, node);
    Fixture::new(&full_spec).worker("gpu-0", pod).slurm_node(full_node)
}

fn in_states(states: &[&str]) -> Value {
    json!({ "state": states })
}

/// The mirror update of the pod.
fn pod_mirror(fixture: &Fixture) -> Option<PodMirror> {
    let mut mirrors = fixture.plan().pod_mirrors;
    assert!(mirrors.len() <= 1, "{mirrors:?}");
    mirrors.pop()
}

/// The mirror updates of the Slurm node.
fn node_updates(fixture: &Fixture) -> Vec<NodeUpdate> {
    let mirrors = fixture.plan().node_mirrors.into_iter();
    let updates = mirrors.map(|NodeMirror { node, update }| {
        assert_eq!(node, "gpu-0");
        update
    });
    updates.collect()
}

/// A label or annotation that is neither changed nor removed.
const UNCHANGED: &str = "unchanged";
/// A label or annotation that is removed.
const REMOVED: &str = "removed";

/// The new value of a label or annotation, or `UNCHANGED` or `REMOVED`.
fn change(changes: &BTreeMap<String, Option<String>>, key: &str) -> String {
    changes.get(key).map_or(UNCHANGED, |value| value.as_deref().unwrap_or(REMOVED)).to_owned()
}

fn label(fixture: &Fixture, key: &str) -> String {
    change(&pod_mirror(fixture).map(|mirror| mirror.labels).unwrap_or_default(), key)
}

fn annotation(fixture: &Fixture, key: &str) -> String {
    change(&pod_mirror(fixture).map(|mirror| mirror.annotations).unwrap_or_default(), key)
}

#[test]
fn up_to_date_pod_and_node_are_not_written() {
    let fixture = fixture(&json!({}), &idle(&json!({})), &json!({}));
    assert_eq!((pod_mirror(&fixture), node_updates(&fixture)), (None, vec![]));
}

#[rstest]
#[case::padding_changed(json!({ "ordinalPadding": 2 }), json!({}), json!({}))]
#[case::labels_of_another_pod(
    json!({}), json!({ "pod-name": "gpu-9", "pod-index": "9" }), json!({ "pod-name": "gpu-0", "pod-index": "0" })
)]
#[case::labels_missing(json!({}), json!({ "pod-name": null, "pod-index": null }), json!({ "pod-name": "gpu-0", "pod-index": "0" }))]
#[case::generated_name_missing(
    json!({ "scalingMode": "DaemonSet" }), json!({ "scaling-mode": "DaemonSet", "pod-name": "" }), json!({ "pod-name": "gpu-0" })
)]
fn pod_labels_follow_the_pod_name(#[case] spec: Value, #[case] labels: Value, #[case] expected: Value) {
    let prefixed = |labels: Value| -> serde_json::Map<String, Value> {
        let labels = labels.as_object().unwrap().clone().into_iter();
        labels.map(|(key, value)| (format!("nodeset.slinky.slurm.net/{key}"), value)).collect()
    };
    let fixture = fixture(&spec, &idle(&json!({ "metadata": { "labels": prefixed(labels) } })), &json!({}));
    let written = pod_mirror(&fixture).map(|mirror| mirror.labels).unwrap_or_default();
    assert_eq!(json!(written), Value::Object(prefixed(expected)));
}

#[rstest]
#[case::busy(&["ALLOCATED"], &["Allocated"])]
#[case::idle_and_drained(&["IDLE", "DRAIN"], &["Idle", "Drain"])]
#[case::flags_in_fixed_order(&["UNDRAIN", "NOT_RESPONDING", "MAINTENANCE", "INVALID_REG", "INVALID", "FAIL", "DRAIN", "COMPLETING", "DOWN"],
    &["Down", "Completing", "Drain", "Fail", "Invalid", "InvalidReg", "Maintenance", "NotResponding", "Undrain"])]
#[case::ignored_flags(&["MIXED", "CLOUD", "DYNAMIC_NORM", "PLANNED", "RESERVED"], &["Mixed"])]
#[case::one_base_state(&["UNKNOWN", "IDLE"], &["Idle"])]
fn pod_conditions_mirror_the_node_states(#[case] states: &[&str], #[case] expected: &[&str]) {
    let fixture = fixture(&json!({}), &with_states(&["Error"]), &in_states(states));
    let mirror = pod_mirror(&fixture).unwrap();
    let types: Vec<_> = mirror.conditions.iter().map(|condition| condition.type_.clone()).collect();
    assert_eq!(types, expected.iter().map(|state| format!("SlurmNodeState{state}")).collect::<Vec<_>>());
    assert_eq!(mirror.ended, ["SlurmNodeStateError"], "other conditions stay");
    assert!(mirror.conditions.iter().all(|condition| condition.status == "True"));
}

#[test]
fn unchanged_state_keeps_its_transition_time_and_gets_the_reason() {
    let fixture = fixture(
        &json!({}),
        &with_states(&["Idle"]),
        &json!({ "state": ["IDLE", "DRAIN"], "reason": "disk" }),
    );
    let mirror = pod_mirror(&fixture).unwrap();
    let conditions = mirror.conditions.iter().map(|condition| {
        let since = condition.last_transition_time.as_ref().map(|time| time.0);
        (condition.type_.as_str(), condition.message.as_deref(), since)
    });
    assert_eq!(
        conditions.collect::<Vec<_>>(),
        [
            ("SlurmNodeStateIdle", Some("disk"), Some(minute(5))),
            ("SlurmNodeStateDrain", Some("disk"), Some(minute(60))),
        ]
    );
    assert!(mirror.ended.is_empty());
}

fn protected() -> Value {
    json!({ "metadata": { "labels": { PROTECT: "true" } } })
}

/// With a Slurm node whose state is uncertain.
fn uncertain(mut fixture: Fixture) -> Fixture {
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is unreachable") };
    known.uncertain.insert("gpu-0".to_owned());
    fixture
}

/// The mirrored values are the last known state of the node: that it registered, and whether it had a job.
#[rstest]
#[case::not_listed(|fixture: Fixture| fixture.without_slurm_node("gpu-0"))]
#[case::written_to_since_the_snapshot(uncertain)]
#[case::unreachable(Fixture::unknown)]
#[case::restapi_deleted(|fixture: Fixture| fixture.view(View::NoRestApi))]
fn mirrored_values_stay_while_the_node_is_not_observed(#[case] change: fn(Fixture) -> Fixture) {
    let mut pod = with_states(&["Allocated", "Drain"]);
    merge(&mut pod, &protected());
    merge(&mut pod, &json!({ "metadata": { "annotations": { DEADLINE: "2030-01-01T00:00:00Z" } } }));
    let fixture = change(fixture(&json!({}), &pod, &in_states(&["IDLE"])));
    assert_eq!((pod_mirror(&fixture), node_updates(&fixture)), (None, vec![]));
}

#[rstest]
#[case::running_job(json!({}), json!({}), &["MIXED"], "true")]
#[case::completing_job(json!({}), json!({}), &["IDLE", "COMPLETING"], "true")]
#[case::already_protected(json!({}), protected(), &["ALLOCATED"], UNCHANGED)]
#[case::job_ended(json!({}), protected(), &["IDLE"], REMOVED)]
#[case::job_ended_and_drained(json!({}), protected(), &["IDLE", "DRAIN"], REMOVED)]
#[case::idle_and_unprotected(json!({}), json!({}), &["IDLE"], UNCHANGED)]
#[case::protection_is_off(json!({ "workloadDisruptionProtection": false }), protected(), &["ALLOCATED"], REMOVED)]
fn pod_is_protected_while_its_node_is_busy(
    #[case] spec: Value,
    #[case] pod: Value,
    #[case] states: &[&str],
    #[case] expected: &str,
) {
    let fixture = fixture(&spec, &idle(&pod), &in_states(states));
    assert_eq!(label(&fixture, PROTECT), expected);
}

#[rstest]
#[case::idle(&["Idle"])]
#[case::never(&[])]
fn pod_without_node_and_last_idle_is_not_protected(#[case] states: &[&str]) {
    let mut pod = with_states(states);
    merge(&mut pod, &protected());
    // Without budget no worker is replaced.
    let strategy =
        json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0 } } });
    let fixture = fixture(&strategy, &pod, &json!({})).without_slurm_node("gpu-0");
    assert_eq!(label(&fixture, PROTECT), REMOVED);
}

/// After a restart of slurmctld the node may not have registered again yet.
#[test]
fn protected_pod_stays_protected_while_slurm_is_new() {
    let mut pod = with_states(&["Idle"]);
    merge(&mut pod, &protected());
    let mut fixture = fixture(&json!({}), &pod, &json!({})).without_slurm_node("gpu-0");
    assert_eq!(label(&fixture, PROTECT), REMOVED);
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is unreachable") };
    known.is_new = true;
    assert_eq!(label(&fixture, PROTECT), UNCHANGED);
}

/// A write would change the resource version that the delete is conditional on.
#[test]
fn deleted_pod_is_not_mirrored() {
    let mut pod = with_states(&["Mixed", "Drain"]);
    merge(
        &mut pod,
        &json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "scale-in" } } }),
    );
    let drained = json!({ "state": ["IDLE", "DRAIN"], "reason": "slurm-operator: x" });
    let kept = fixture(&json!({}), &pod, &drained);
    assert!(pod_mirror(&kept).is_some());
    let removed = fixture(&json!({ "replicas": 0 }), &pod, &drained);
    assert_eq!(removed.effects(), ["delete gpu-0 (Surplus, drained)"]);
    assert!(pod_mirror(&removed).is_none(), "{:?}", pod_mirror(&removed));
}

/// With a job that ends by `deadline`, or without jobs.
fn with_jobs(fixture: Fixture, deadline: Option<Deadline>) -> Fixture {
    match deadline {
        Some(deadline) => fixture.job_until("gpu-0", deadline),
        None => fixture.jobs("gpu", 0),
    }
}

fn due(text: &str) -> Value {
    json!({ "metadata": { "annotations": { DEADLINE: text } } })
}

#[rstest]
#[case::new(json!({}), Some(Deadline::At(minute(90))), "2023-03-28T12:10:00Z")]
#[case::already_annotated(due("2023-03-28T12:10:00Z"), Some(Deadline::At(minute(90))), UNCHANGED)]
#[case::moved(due("2023-03-28T12:00:00Z"), Some(Deadline::At(minute(90))), "2023-03-28T12:10:00Z")]
#[case::without_end(json!({}), Some(Deadline::Never), "9999-01-01T00:00:00Z")]
#[case::ended(due("2023-03-28T12:10:00Z"), None, REMOVED)]
fn deadline_annotation_follows_the_last_job(
    #[case] pod: Value,
    #[case] deadline: Option<Deadline>,
    #[case] expected: &str,
) {
    let fixture = with_jobs(fixture(&json!({}), &idle(&pod), &in_states(&["MIXED"])), deadline);
    assert_eq!(annotation(&fixture, DEADLINE), expected);
}

#[rstest]
#[case::busy(&["MIXED"], UNCHANGED)]
#[case::idle(&["IDLE"], REMOVED)]
fn deadline_annotation_stays_without_job_list_while_busy(#[case] states: &[&str], #[case] expected: &str) {
    let fixture = fixture(&json!({}), &idle(&due("2023-03-28T12:10:00Z")), &in_states(states));
    assert_eq!(annotation(&fixture, DEADLINE), expected);
}

fn at(topology: &str) -> Value {
    json!({ "metadata": { "annotations": { TOPOLOGY: topology } } })
}

#[test]
fn topology_of_the_kubernetes_node_is_mirrored() {
    let fixture = fixture(&json!({}), &idle(&json!({})), &json!({})).host("node-a", &at("topo-block:b0"));
    assert_eq!(annotation(&fixture, TOPOLOGY), "topo-block:b0");
    assert_eq!(node_updates(&fixture), [NodeUpdate::Topology("topo-block:b0".to_owned())]);
}

/// The oldest API version of slurmrestd neither shows nor takes a topology: writes would never end.
#[test]
fn topology_is_not_written_where_slurm_shows_none() {
    let unknown = json!({ "topology": null });
    let fixture = fixture(&json!({}), &idle(&json!({})), &unknown).host("node-a", &at("topo-block:b0"));
    assert_eq!(node_updates(&fixture), []);
}

#[rstest]
#[case::changed("topo-block:b0")]
#[case::removed("")]
fn topology_in_slurm_stays_without_sync(#[case] host: &str) {
    let pod = idle(&json!({ "metadata": { "annotations": { TOPOLOGY: "topo-block:b1" } } }));
    let mirrors = |spec: &Value| {
        let fixture = fixture(spec, &pod, &json!({ "topology": "topo-block:b1" })).host("node-a", &at(host));
        (annotation(&fixture, TOPOLOGY), node_updates(&fixture))
    };
    assert_eq!(mirrors(&json!({})).1, [NodeUpdate::Topology(host.to_owned())]);
    assert_eq!(mirrors(&json!({ "syncTopology": false })), (UNCHANGED.to_owned(), vec![]));
}

#[test]
fn missing_topology_needs_no_pod_write() {
    let topology_change = |fixture: Fixture| annotation(&fixture.host("node-a", &json!({})), TOPOLOGY);
    let pod = json!({ "metadata": { "annotations": { TOPOLOGY: null } } });
    assert_eq!(topology_change(fixture(&json!({}), &idle(&pod), &json!({}))), UNCHANGED);
    let placed = json!({ "metadata": { "annotations": { TOPOLOGY: "b0" } } });
    assert_eq!(topology_change(fixture(&json!({}), &idle(&placed), &json!({}))), "");
}

#[rstest]
#[case::unbound("")]
#[case::bound_to_deleted_node("gone")]
fn missing_kubernetes_node_is_not_mirrored(#[case] node: &str) {
    let pod = json!({ "spec": { "nodeName": node }, "metadata": { "annotations": { TOPOLOGY: "b0" } } });
    let fixture =
        fixture(&json!({}), &idle(&pod), &json!({ "comment": "" })).host("node-a", &at("topo-block:b0"));
    assert_eq!((pod_mirror(&fixture), node_updates(&fixture)), (None, vec![]));
}

#[test]
fn features_are_mirrored_once_the_node_is_registered() {
    let listed = json!({ "metadata": { "annotations": { "features.slinky.slurm.net/spec": "nn-x,GPU" } } });
    let known = json!({ "features": ["foo"], "active_features": ["foo"] });
    let fixture = fixture(&json!({}), &idle(&json!({})), &known).host("node-a", &listed);
    let all: Vec<_> = ["foo", "k8s/GPU", "k8s/nn-x"].map(str::to_owned).into();
    assert_eq!(node_updates(&fixture), [NodeUpdate::Features { available: all.clone(), active: all }]);
    assert_eq!(node_updates(&fixture.without_slurm_node("gpu-0")), []);
}

#[rstest]
#[case::healthy(json!({}), 1)]
#[case::not_ready(json!({ "status": { "conditions": [] } }), 0)]
#[case::terminating(json!({ "metadata": { "deletionTimestamp": minute(50) } }), 0)]
#[case::failed(json!({ "status": { "phase": "Failed" } }), 0)]
fn only_healthy_pods_are_mirrored_to_the_comment(#[case] pod: Value, #[case] expected: usize) {
    let fixture = fixture(&json!({}), &idle(&pod), &json!({ "comment": "" }));
    let comments =
        node_updates(&fixture).iter().filter(|update| matches!(update, NodeUpdate::Comment(_))).count();
    assert_eq!(comments, expected);
}
