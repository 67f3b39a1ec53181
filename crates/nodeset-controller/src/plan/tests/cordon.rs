//! Cordons and drains: cordons in Kubernetes drain Slurm nodes, and drains by people stay.

use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::labels::annotations::CORDONED_PODS;

fn cordoned_by(by: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by } } })
}

fn one(change: &Value, states: &[&str], reason: &str) -> Fixture {
    Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", change).slurm("gpu-0", states, reason)
}

fn on_cordoned_node(fixture: Fixture) -> Fixture {
    fixture.host("node-a", &json!({ "spec": { "unschedulable": true } }))
}

#[test]
fn cordoned_kubernetes_node_is_drained_in_slurm() {
    let fixture = on_cordoned_node(one(&json!({}), &["IDLE"], ""));
    let reason = "slurm-operator: Node (node-a) was cordoned, Pod (ns/gpu-0) must be cordoned";
    assert_eq!(fixture.effects(), [format!("mark gpu-0 for node and drain: {reason}")]);
}

#[test]
fn uncordoned_kubernetes_node_is_undrained_with_any_strategy() {
    for strategy in ["RollingUpdate", "OnDelete"] {
        let fixture = Fixture::new(&json!({ "replicas": 1, "updateStrategy": { "type": strategy } }))
            .worker("gpu-0", &cordoned_by(Some("node")))
            .slurm("gpu-0", &["IDLE", "DRAIN"], "slurm-operator: x");
        assert_eq!(fixture.effects(), [r#"unmark gpu-0 Undrain("gpu-0")"#], "{strategy}");
    }
}

#[rstest]
#[case::drained_by_a_person(&["IDLE", "DRAIN"], "disk")]
#[case::down_by_a_person(&["DOWN"], "disk")]
#[case::a_reason_alone(&["IDLE"], "disk")]
#[case::not_responding(&["DOWN"], "Not responding to ping")]
fn node_with_foreign_reason_is_not_changed(#[case] states: &[&str], #[case] reason: &str) {
    assert!(one(&json!({}), states, reason).effects().is_empty());
    assert!(on_cordoned_node(one(&json!({}), states, reason)).effects().is_empty());
    assert!(one(&cordoned_by(None), states, reason).effects().is_empty());
}

/// A worker on another machine, which booted later than that of its predecessor.
#[rstest]
#[case::replaced(0, Some(r#"gpu-0 Resume("gpu-0")"#))]
#[case::its_machine_rebooted(1, None)]
fn node_of_a_replaced_worker_is_resumed_if_slurmctld_takes_it_for_a_reboot(
    #[case] restarts: i32,
    #[case] expected: Option<&str>,
) {
    let worker = json!({ "status": { "containerStatuses": [{ "name": "slurmd", "image": "", "imageID": "",
        "ready": true, "restartCount": restarts, "state": { "running": { "startedAt": minute(1) } } }] } });
    let fixture = one(&worker, &["DOWN"], "Node unexpectedly rebooted");
    assert_eq!(fixture.effects().first().map(String::as_str), expected);
    let by_a_person = one(&worker, &["DOWN"], "Node unexpectedly rebooted, see ticket 7");
    assert!(by_a_person.effects().is_empty(), "{:?}", by_a_person.effects());
    let without_reason = one(&worker, &["DOWN"], "");
    assert!(without_reason.effects().is_empty(), "{:?}", without_reason.effects());
}

/// A worker of an older revision that a person cordoned, drained for the update.
fn cordoned_and_outdated() -> Fixture {
    let mut worker = cordoned_by(Some("person,update"));
    worker["metadata"]["labels"] = json!({ "controller.kubernetes.io/hash": "old" });
    one(&worker, &["IDLE", "DRAIN"], "slurm-operator: x")
}

fn record(nodeset: &mut slinky_api::v1beta1::NodeSet) {
    nodeset.annotations_mut().insert(CORDONED_PODS.to_owned(), "gpu-0".to_owned());
}

#[test]
fn cordon_by_a_person_outlives_the_pod() {
    let fixture = cordoned_and_outdated();
    assert!(fixture.effects().is_empty(), "the cordon is recorded first");
    let annotations = fixture.plan().metadata.unwrap().annotations;
    assert_eq!(annotations[CORDONED_PODS].as_deref(), Some("gpu-0"));
    let fixture = fixture.nodeset(record);
    assert_eq!(fixture.effects(), ["delete gpu-0 (Outdated, drained)"]);
    let without_pod = Fixture::new(&json!({ "replicas": 1 })).nodeset(record);
    assert!(without_pod.plan().metadata.is_none(), "the record stays while the worker is missing");
    let effects = without_pod.plan().effects;
    let [crate::plan::Effect::CreatePod(new)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(new.pod["metadata"]["annotations"]["nodeset.slinky.slurm.net/pod-cordon"], "true");
}

#[test]
fn record_stays_while_another_worker_leaves() {
    let mut leaving = cordoned_by(Some("scale-in"));
    leaving["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-1", &leaving).nodeset(record);
    assert!(fixture.plan().metadata.is_none(), "{:?}", fixture.plan().metadata);
}

#[test]
fn lifted_cordon_is_removed_from_the_record() {
    let lifted = one(&json!({}), &["IDLE"], "").nodeset(record);
    assert_eq!(lifted.plan().metadata.unwrap().annotations[CORDONED_PODS], None);
    let scaled_in = one(&cordoned_by(None), &["IDLE"], "").nodeset(|nodeset| {
        record(nodeset);
        nodeset.spec.replicas = 0;
    });
    assert_eq!(scaled_in.plan().metadata.unwrap().annotations[CORDONED_PODS], None);
}

#[test]
fn foreign_drain_stays_when_our_mark_is_removed() {
    let fixture = one(&cordoned_by(Some("node")), &["IDLE", "DRAIN"], "disk");
    assert_eq!(fixture.effects(), ["unmark gpu-0 "], "the mark is removed, the drain stays");
}

#[test]
fn pod_cordoned_by_a_person_is_drained_and_stays_drained() {
    let fixture = one(&cordoned_by(None), &["IDLE"], "");
    assert_eq!(fixture.effects(), ["drain gpu-0: slurm-operator: Pod (ns/gpu-0) was cordoned"]);
    let drained = one(&cordoned_by(None), &["IDLE", "DRAIN"], "slurm-operator: Pod (ns/gpu-0) was cordoned");
    assert!(drained.effects().is_empty(), "{:?}", drained.effects());
}

#[test]
fn cordon_by_a_person_stays_when_our_mark_is_removed() {
    let fixture = one(&cordoned_by(Some("person,scale-in")), &["IDLE", "DRAIN"], "slurm-operator: x");
    let plan = fixture.plan();
    let crate::plan::Effect::Uncordon { unmark: true, person: true, undo: None, .. } = &plan.effects[0]
    else {
        panic!("{:?}", plan.effects)
    };
}

#[rstest]
#[case::ours("slurm-operator: Pod (ns/gpu-0) was cordoned", true)]
#[case::of_a_person("disk", false)]
#[case::empty("", false)]
fn drain_without_mark_is_undone_only_if_ours(#[case] reason: &str, #[case] undone: bool) {
    let fixture = one(&json!({}), &["IDLE", "DRAIN"], reason);
    assert_eq!(!fixture.effects().is_empty(), undone, "{:?}", fixture.effects());
}

/// A Slurm node whose reason was set at minute 10.
fn node_with_reason(states: &[&str], reason: &str, slurmd_started: i64) -> Value {
    json!({
        "name": "gpu-0", "state": states, "reason": reason,
        "reason_changed_at": { "set": true, "infinite": false, "number": minute(10).as_second() },
        "slurmd_start_time": { "set": true, "infinite": false, "number": minute(slurmd_started).as_second() },
    })
}

#[rstest]
#[case::down_by_the_previous_pod(&["DOWN"], "slurm-operator: Pod is terminating", 20, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::down_and_drained(&["DOWN", "DRAIN"], "slurm-operator: Pod is terminating", 20, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::drained_for_the_previous_pod(&["IDLE", "DRAIN"], "slurm-operator: x", 20, 25, r#"gpu-0 Undrain("gpu-0")"#)]
#[case::not_registered_yet(&["IDLE", "DRAIN"], "slurm-operator: x", 20, 5, "")]
#[case::restarted_in_place(&["DOWN"], "slurm-operator: Pod is terminating", 0, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::down_with_the_same_pod(&["DOWN"], "slurm-operator: Pod is terminating", 0, 5, r#"gpu-0 Resume("gpu-0")"#)]
#[case::not_responding_until_replaced(&["DOWN"], "Not responding", 20, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::not_responding_with_the_same_pod(&["DOWN"], "Not responding", 0, 25, "")]
#[case::down_by_a_person(&["DOWN"], "disk", 20, 25, "")]
#[case::down_by_a_person_with_a_similar_reason(&["DOWN"], "Not responding, ticket 4711", 20, 25, "")]
fn replaced_node_is_resumed_and_no_other(
    #[case] states: &[&str],
    #[case] reason: &str,
    #[case] pod_created: i64,
    #[case] slurmd_started: i64,
    #[case] expected: &str,
) {
    let worker = json!({
        "metadata": { "creationTimestamp": minute(pod_created) },
        "status": { "containerStatuses": [{ "name": "slurmd", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "state": { "running": { "startedAt": minute(pod_created) } } }] },
    });
    let fixture = Fixture::new(&json!({ "replicas": 1 }))
        .worker("gpu-0", &worker)
        .slurm_node(node_with_reason(states, reason, slurmd_started));
    assert_eq!(fixture.effects().join(""), expected);
}

#[test]
fn unready_worker_is_not_undrained() {
    let fixture = one(&json!({ "status": { "conditions": [] } }), &["IDLE", "DRAIN"], "slurm-operator: x");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[rstest]
#[case::down_without_reason(&["DOWN", "NOT_RESPONDING"])]
#[case::briefly_not_responding(&["IDLE", "NOT_RESPONDING"])]
#[case::busy(&["ALLOCATED"])]
fn node_without_foreign_reason_is_drained(#[case] states: &[&str]) {
    let effects = on_cordoned_node(one(&json!({}), states, "")).effects();
    assert!(effects[0].starts_with("mark gpu-0 for node and drain: "), "{effects:?}");
    let effects = one(&cordoned_by(None), states, "").effects();
    assert!(effects[0].starts_with("drain gpu-0: "), "{effects:?}");
}

#[rstest]
#[case::marked_for_the_node("node", &["IDLE", "DRAIN"], "")]
#[case::marked_for_another_cause("scale-in", &["IDLE", "DRAIN"], "mark gpu-0 for node")]
#[case::undrained_by_a_person("node", &["IDLE"],
    "mark gpu-0 for node and drain: slurm-operator: Node (node-a) was cordoned, Pod (ns/gpu-0) must be cordoned")]
fn pod_on_cordoned_kubernetes_node_keeps_its_mark(
    #[case] by: &str,
    #[case] states: &[&str],
    #[case] expected: &str,
) {
    let reason = if states.contains(&"DRAIN") { "slurm-operator: x" } else { "" };
    let fixture = on_cordoned_node(one(&cordoned_by(Some(by)), states, reason));
    assert_eq!(fixture.effects().join(""), expected);
}

#[rstest]
#[case::without_drain(&["IDLE"], "", "unmark gpu-0 ")]
#[case::down_by_the_prestop_hook(
    &["DOWN", "DRAIN"], "slurm-operator: Pod is terminating", r#"unmark gpu-0 Resume("gpu-0")"#
)]
fn mark_without_cause_is_removed(#[case] states: &[&str], #[case] reason: &str, #[case] expected: &str) {
    assert_eq!(one(&cordoned_by(Some("scale-in")), states, reason).effects(), [expected]);
}
