//! What pods say of their Slurm nodes, and Slurm nodes of their pods.

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

/// A worker that says who it is and that its Slurm node is idle, with this changed.
fn idle(change: &Value) -> Value {
    let mut pod = saying(&["Idle"]);
    merge(&mut pod, change);
    pod
}

/// A worker that says who it is and that its Slurm node is in these states.
fn saying(states: &[&str]) -> Value {
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

/// One such worker, and a Slurm node that says of it what it should, with this changed.
fn fixture(spec: &Value, pod: &Value, node: &Value) -> Fixture {
    let mut wanted = json!({ "replicas": 1 });
    merge(&mut wanted, spec);
    let comment = json!({ "namespace": "ns", "podName": "gpu-0", "node": "node-a", "nodeSetName": "gpu",
        "nodeSetUID": "u" });
    let mut told = json!({ "name": "gpu-0", "state": ["IDLE"], "comment": comment.to_string() });
    merge(&mut told, node);
    Fixture::new(&wanted).worker("gpu-0", pod).slurm_node(told)
}

fn in_states(states: &[&str]) -> Value {
    json!({ "state": states })
}

/// What the pod should say and does not.
fn of_pod(fixture: &Fixture) -> Option<PodMirror> {
    let mut mirrors = fixture.plan().pod_mirrors;
    assert!(mirrors.len() <= 1, "{mirrors:?}");
    mirrors.pop()
}

/// What the Slurm node should say and does not.
fn of_node(fixture: &Fixture) -> Vec<NodeUpdate> {
    let mirrors = fixture.plan().node_mirrors.into_iter();
    let told = mirrors.map(|NodeMirror { node, update }| {
        assert_eq!(node, "gpu-0");
        update
    });
    told.collect()
}

/// What becomes of a label or an annotation that is neither changed nor removed.
const STAYS: &str = "stays";
/// What becomes of one that is removed.
const GOES: &str = "goes";

/// The new value of a label or an annotation, or one of these words.
fn change(changes: &BTreeMap<String, Option<String>>, key: &str) -> String {
    changes.get(key).map_or(STAYS, |value| value.as_deref().unwrap_or(GOES)).to_owned()
}

fn label(fixture: &Fixture, key: &str) -> String {
    change(&of_pod(fixture).map(|mirror| mirror.labels).unwrap_or_default(), key)
}

fn annotation(fixture: &Fixture, key: &str) -> String {
    change(&of_pod(fixture).map(|mirror| mirror.annotations).unwrap_or_default(), key)
}

#[test]
fn whoever_says_everything_is_left_alone() {
    let fixture = fixture(&json!({}), &idle(&json!({})), &json!({}));
    assert_eq!((of_pod(&fixture), of_node(&fixture)), (None, vec![]));
}

#[rstest]
#[case::padded_otherwise_today(json!({ "ordinalPadding": 2 }), json!({}), json!({}))]
#[case::of_another_pod(
    json!({}), json!({ "pod-name": "gpu-9", "pod-index": "9" }), json!({ "pod-name": "gpu-0", "pod-index": "0" })
)]
#[case::lost(json!({}), json!({ "pod-name": null, "pod-index": null }), json!({ "pod-name": "gpu-0", "pod-index": "0" }))]
#[case::of_a_daemon_that_had_no_name_yet(
    json!({ "scalingMode": "DaemonSet" }), json!({ "scaling-mode": "DaemonSet", "pod-name": "" }), json!({ "pod-name": "gpu-0" })
)]
fn labels_name_the_pod(#[case] spec: Value, #[case] labels: Value, #[case] expected: Value) {
    let prefixed = |labels: Value| -> serde_json::Map<String, Value> {
        let labels = labels.as_object().unwrap().clone().into_iter();
        labels.map(|(key, value)| (format!("nodeset.slinky.slurm.net/{key}"), value)).collect()
    };
    let fixture = fixture(&spec, &idle(&json!({ "metadata": { "labels": prefixed(labels) } })), &json!({}));
    let written = of_pod(&fixture).map(|mirror| mirror.labels).unwrap_or_default();
    assert_eq!(json!(written), Value::Object(prefixed(expected)));
}

#[rstest]
#[case::busy(&["ALLOCATED"], &["Allocated"])]
#[case::idle_and_drained(&["IDLE", "DRAIN"], &["Idle", "Drain"])]
#[case::flags_in_one_order(&["UNDRAIN", "NOT_RESPONDING", "MAINTENANCE", "INVALID_REG", "INVALID", "FAIL", "DRAIN", "COMPLETING", "DOWN"],
    &["Down", "Completing", "Drain", "Fail", "Invalid", "InvalidReg", "Maintenance", "NotResponding", "Undrain"])]
#[case::what_means_nothing_to_pods(&["MIXED", "CLOUD", "DYNAMIC_NORM", "PLANNED", "RESERVED"], &["Mixed"])]
#[case::one_base_state(&["UNKNOWN", "IDLE"], &["Idle"])]
fn a_pod_has_the_states_of_its_node(#[case] states: &[&str], #[case] expected: &[&str]) {
    let fixture = fixture(&json!({}), &saying(&["Error"]), &in_states(states));
    let mirror = of_pod(&fixture).unwrap();
    let types: Vec<_> = mirror.conditions.iter().map(|condition| condition.type_.clone()).collect();
    assert_eq!(types, expected.iter().map(|state| format!("SlurmNodeState{state}")).collect::<Vec<_>>());
    assert_eq!(mirror.ended, ["SlurmNodeStateError"], "those of others stay");
    assert!(mirror.conditions.iter().all(|condition| condition.status == "True"));
}

#[test]
fn a_state_that_stays_keeps_its_time_and_says_why() {
    let fixture =
        fixture(&json!({}), &saying(&["Idle"]), &json!({ "state": ["IDLE", "DRAIN"], "reason": "disk" }));
    let mirror = of_pod(&fixture).unwrap();
    let told = mirror.conditions.iter().map(|condition| {
        let since = condition.last_transition_time.as_ref().map(|time| time.0);
        (condition.type_.as_str(), condition.message.as_deref(), since)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
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

/// With nothing certain known of the node.
fn uncertain(mut fixture: Fixture) -> Fixture {
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is not known") };
    known.uncertain.insert("gpu-0".to_owned());
    fixture
}

/// What a pod said is all that is left of its node: whether it had a job, and that it was there.
#[rstest]
#[case::not_in_the_list(|fixture: Fixture| fixture.without_slurm_node("gpu-0"))]
#[case::written_to_since(uncertain)]
#[case::out_of_reach(Fixture::unknown)]
#[case::not_expected_any_more(|fixture: Fixture| fixture.view(View::NotExpected))]
fn a_pod_whose_node_is_not_seen_says_what_it_said(#[case] change: fn(Fixture) -> Fixture) {
    let mut pod = saying(&["Allocated", "Drain"]);
    merge(&mut pod, &protected());
    merge(&mut pod, &json!({ "metadata": { "annotations": { DEADLINE: "2030-01-01T00:00:00Z" } } }));
    let fixture = change(fixture(&json!({}), &pod, &in_states(&["IDLE"])));
    assert_eq!((of_pod(&fixture), of_node(&fixture)), (None, vec![]));
}

#[rstest]
#[case::a_job(json!({}), json!({}), &["MIXED"], "true")]
#[case::its_end(json!({}), json!({}), &["IDLE", "COMPLETING"], "true")]
#[case::a_job_as_before(json!({}), protected(), &["ALLOCATED"], STAYS)]
#[case::no_job_any_more(json!({}), protected(), &["IDLE"], GOES)]
#[case::no_job_and_drained(json!({}), protected(), &["IDLE", "DRAIN"], GOES)]
#[case::no_job_as_before(json!({}), json!({}), &["IDLE"], STAYS)]
#[case::nobody_wants_that(json!({ "workloadDisruptionProtection": false }), protected(), &["ALLOCATED"], GOES)]
fn a_pod_is_protected_while_its_node_has(
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
fn a_pod_whose_node_is_gone_is_not_protected_if_it_was_last_seen(#[case] states: &[&str]) {
    let mut pod = saying(states);
    merge(&mut pod, &protected());
    // Nobody is replaced.
    let strategy =
        json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0 } } });
    let fixture = fixture(&strategy, &pod, &json!({})).without_slurm_node("gpu-0");
    assert_eq!(label(&fixture, PROTECT), GOES);
}

/// A slurmctld that was never heard before may not have it back yet.
#[test]
fn a_protected_pod_stays_so_until_slurm_had_time_to_have_its_node_back() {
    let mut pod = saying(&["Idle"]);
    merge(&mut pod, &protected());
    let mut fixture = fixture(&json!({}), &pod, &json!({})).without_slurm_node("gpu-0");
    assert_eq!(label(&fixture, PROTECT), GOES);
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is not known") };
    known.is_new = true;
    assert_eq!(label(&fixture, PROTECT), STAYS);
}

/// What it says would change the version that its end was decided on.
#[test]
fn a_pod_that_is_deleted_says_nothing_more() {
    let mut pod = saying(&["Mixed", "Drain"]);
    merge(
        &mut pod,
        &json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "scale-in" } } }),
    );
    let drained = json!({ "state": ["IDLE", "DRAIN"], "reason": "slurm-operator: x" });
    let staying = fixture(&json!({}), &pod, &drained);
    assert!(of_pod(&staying).is_some());
    let leaving = fixture(&json!({ "replicas": 0 }), &pod, &drained);
    assert_eq!(leaving.effects(), ["delete gpu-0 (Surplus, drained)"]);
    assert!(of_pod(&leaving).is_none(), "{:?}", of_pod(&leaving));
}

/// With running jobs that end then, or none that anybody could tell of.
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
#[case::told(json!({}), Some(Deadline::At(minute(90))), "2023-03-28T12:10:00Z")]
#[case::told_before(due("2023-03-28T12:10:00Z"), Some(Deadline::At(minute(90))), STAYS)]
#[case::moved(due("2023-03-28T12:00:00Z"), Some(Deadline::At(minute(90))), "2023-03-28T12:10:00Z")]
#[case::without_end(json!({}), Some(Deadline::Never), "9999-01-01T00:00:00Z")]
#[case::over(due("2023-03-28T12:10:00Z"), None, GOES)]
fn a_pod_says_when_its_last_job_is_over(
    #[case] pod: Value,
    #[case] deadline: Option<Deadline>,
    #[case] expected: &str,
) {
    let fixture = with_jobs(fixture(&json!({}), &idle(&pod), &in_states(&["MIXED"])), deadline);
    assert_eq!(annotation(&fixture, DEADLINE), expected);
}

#[rstest]
#[case::busy(&["MIXED"], STAYS)]
#[case::idle(&["IDLE"], GOES)]
fn a_deadline_outlives_the_list_of_jobs_while_the_node_is(#[case] states: &[&str], #[case] expected: &str) {
    let fixture = fixture(&json!({}), &idle(&due("2023-03-28T12:10:00Z")), &in_states(states));
    assert_eq!(annotation(&fixture, DEADLINE), expected);
}

fn at(topology: &str) -> Value {
    json!({ "metadata": { "annotations": { TOPOLOGY: topology } } })
}

#[test]
fn the_place_of_the_kubernetes_node_is_that_of_pod_and_slurm_node() {
    let fixture = fixture(&json!({}), &idle(&json!({})), &json!({})).host("node-a", &at("topo-block:b0"));
    assert_eq!(annotation(&fixture, TOPOLOGY), "topo-block:b0");
    assert_eq!(of_node(&fixture), [NodeUpdate::Topology("topo-block:b0".to_owned())]);
}

#[test]
fn a_kubernetes_node_without_a_place_costs_no_write_for_each_of_its_pods() {
    let silent = |fixture: Fixture| annotation(&fixture.host("node-a", &json!({})), TOPOLOGY);
    let pod = json!({ "metadata": { "annotations": { TOPOLOGY: null } } });
    assert_eq!(silent(fixture(&json!({}), &idle(&pod), &json!({}))), STAYS);
    let placed = json!({ "metadata": { "annotations": { TOPOLOGY: "b0" } } });
    assert_eq!(silent(fixture(&json!({}), &idle(&placed), &json!({}))), "");
}

#[rstest]
#[case::bound_to_none("")]
#[case::bound_to_one_that_is_gone("gone")]
fn without_a_kubernetes_node_nothing_is_said_of_it(#[case] node: &str) {
    let pod = json!({ "spec": { "nodeName": node }, "metadata": { "annotations": { TOPOLOGY: "b0" } } });
    let fixture =
        fixture(&json!({}), &idle(&pod), &json!({ "comment": "" })).host("node-a", &at("topo-block:b0"));
    assert_eq!((of_pod(&fixture), of_node(&fixture)), (None, vec![]));
}

#[test]
fn features_of_the_kubernetes_node_reach_slurm_once_the_node_is_there() {
    let listed = json!({ "metadata": { "annotations": { "features.slinky.slurm.net/spec": "nn-x,GPU" } } });
    let known = json!({ "features": ["foo"], "active_features": ["foo"] });
    let fixture = fixture(&json!({}), &idle(&json!({})), &known).host("node-a", &listed);
    let all: Vec<_> = ["foo", "k8s/GPU", "k8s/nn-x"].map(str::to_owned).into();
    assert_eq!(of_node(&fixture), [NodeUpdate::Features { available: all.clone(), active: all }]);
    assert_eq!(of_node(&fixture.without_slurm_node("gpu-0")), []);
}

#[rstest]
#[case::healthy(json!({}), 1)]
#[case::not_ready(json!({ "status": { "conditions": [] } }), 0)]
#[case::ending(json!({ "metadata": { "deletionTimestamp": minute(50) } }), 0)]
#[case::failed(json!({ "status": { "phase": "Failed" } }), 0)]
fn a_slurm_node_is_told_of_a_healthy_pod(#[case] pod: Value, #[case] told: usize) {
    let fixture = fixture(&json!({}), &idle(&pod), &json!({ "comment": "" }));
    let comments = of_node(&fixture).iter().filter(|update| matches!(update, NodeUpdate::Comment(_))).count();
    assert_eq!(comments, told);
}
