//! Cordons and drains: what Kubernetes says reaches Slurm, what people did stays.

use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use rstest::rstest;
use serde_json::{Value, json};

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
fn a_cordoned_kubernetes_node_is_drained_in_slurm() {
    let fixture = on_cordoned_node(one(&json!({}), &["IDLE"], ""));
    let reason = "slurm-operator: Node (node-a) was cordoned, Pod (ns/gpu-0) must be cordoned";
    assert_eq!(fixture.effects(), [format!("mark gpu-0 for node and drain: {reason}")]);
}

#[test]
fn an_uncordoned_kubernetes_node_is_undrained_whatever_the_strategy() {
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
#[case::silent(&["DOWN"], "Not responding to ping")]
fn a_node_that_somebody_else_has_a_say_about_is_left_alone(#[case] states: &[&str], #[case] reason: &str) {
    assert!(one(&json!({}), states, reason).effects().is_empty());
    assert!(on_cordoned_node(one(&json!({}), states, reason)).effects().is_empty());
    assert!(one(&cordoned_by(None), states, reason).effects().is_empty());
}

#[test]
fn a_drain_of_a_person_survives_our_own_mark() {
    let fixture = one(&cordoned_by(Some("node")), &["IDLE", "DRAIN"], "disk");
    assert_eq!(fixture.effects(), ["unmark gpu-0 "], "the mark goes, the drain stays");
}

#[test]
fn a_pod_that_a_person_cordoned_is_drained_and_stays_so() {
    let fixture = one(&cordoned_by(None), &["IDLE"], "");
    assert_eq!(fixture.effects(), ["drain gpu-0: slurm-operator: Pod (ns/gpu-0) was cordoned"]);
    let drained = one(&cordoned_by(None), &["IDLE", "DRAIN"], "slurm-operator: Pod (ns/gpu-0) was cordoned");
    assert!(drained.effects().is_empty(), "{:?}", drained.effects());
}

#[test]
fn a_cordon_of_a_person_outlives_a_mark_of_ours() {
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
#[case::nobodys("", false)]
fn a_drain_without_mark_is_undone_if_it_is_ours(#[case] reason: &str, #[case] undone: bool) {
    let fixture = one(&json!({}), &["IDLE", "DRAIN"], reason);
    assert_eq!(!fixture.effects().is_empty(), undone, "{:?}", fixture.effects());
}

/// A node with a reason given at minute 10.
fn told(states: &[&str], reason: &str, slurmd_started: i64) -> Value {
    json!({
        "name": "gpu-0", "state": states, "reason": reason,
        "reason_changed_at": { "set": true, "infinite": false, "number": minute(10).as_second() },
        "slurmd_start_time": { "set": true, "infinite": false, "number": minute(slurmd_started).as_second() },
    })
}

#[rstest]
#[case::down_by_the_end_of_the_pod_before(&["DOWN"], "slurm-operator: Pod is terminating", 20, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::down_and_drained(&["DOWN", "DRAIN"], "slurm-operator: Pod is terminating", 20, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::drained_for_the_pod_before(&["IDLE", "DRAIN"], "slurm-operator: x", 20, 25, r#"gpu-0 Undrain("gpu-0")"#)]
#[case::not_there_yet(&["IDLE", "DRAIN"], "slurm-operator: x", 20, 5, "")]
#[case::restarted_in_place(&["DOWN"], "slurm-operator: Pod is terminating", 0, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::down_although_its_pod_stays(&["DOWN"], "slurm-operator: Pod is terminating", 0, 5, r#"gpu-0 Resume("gpu-0")"#)]
#[case::silent_until_it_was_replaced(&["DOWN"], "Not responding", 20, 25, r#"gpu-0 Resume("gpu-0")"#)]
#[case::silent_by_itself(&["DOWN"], "Not responding", 0, 25, "")]
#[case::down_by_a_person(&["DOWN"], "disk", 20, 25, "")]
#[case::down_by_a_person_who_says_more(&["DOWN"], "Not responding, ticket 4711", 20, 25, "")]
fn what_we_replaced_comes_back_and_nothing_else(
    #[case] states: &[&str],
    #[case] reason: &str,
    #[case] pod_made: i64,
    #[case] slurmd_started: i64,
    #[case] expected: &str,
) {
    let made = json!({
        "metadata": { "creationTimestamp": minute(pod_made) },
        "status": { "containerStatuses": [{ "name": "slurmd", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "state": { "running": { "startedAt": minute(pod_made) } } }] },
    });
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &made).slurm_node(told(
        states,
        reason,
        slurmd_started,
    ));
    assert_eq!(fixture.effects().join(""), expected);
}

#[test]
fn a_worker_that_is_not_ready_is_not_put_to_work() {
    let fixture = one(&json!({ "status": { "conditions": [] } }), &["IDLE", "DRAIN"], "slurm-operator: x");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[rstest]
#[case::down_without_a_word(&["DOWN", "NOT_RESPONDING"])]
#[case::silent_for_a_moment(&["IDLE", "NOT_RESPONDING"])]
#[case::busy(&["ALLOCATED"])]
fn a_node_that_nobody_else_has_a_say_about_is_drained(#[case] states: &[&str]) {
    let effects = on_cordoned_node(one(&json!({}), states, "")).effects();
    assert!(effects[0].starts_with("mark gpu-0 for node and drain: "), "{effects:?}");
    let effects = one(&cordoned_by(None), states, "").effects();
    assert!(effects[0].starts_with("drain gpu-0: "), "{effects:?}");
}

#[rstest]
#[case::that_was_made_for_it("node", &["IDLE", "DRAIN"], "")]
#[case::that_outlived_its_cause("scale-in", &["IDLE", "DRAIN"], "mark gpu-0 for node")]
#[case::whose_drain_somebody_ended("node", &["IDLE"],
    "mark gpu-0 for node and drain: slurm-operator: Node (node-a) was cordoned, Pod (ns/gpu-0) must be cordoned")]
fn while_its_kubernetes_node_is_cordoned_a_pod_keeps_a_mark(
    #[case] by: &str,
    #[case] states: &[&str],
    #[case] expected: &str,
) {
    let reason = if states.contains(&"DRAIN") { "slurm-operator: x" } else { "" };
    let fixture = on_cordoned_node(one(&cordoned_by(Some(by)), states, reason));
    assert_eq!(fixture.effects().join(""), expected);
}

#[rstest]
#[case::that_never_led_to_a_drain(&["IDLE"], "", "unmark gpu-0 ")]
#[case::of_a_pod_whose_end_was_announced(
    &["DOWN", "DRAIN"], "slurm-operator: Pod is terminating", r#"unmark gpu-0 Resume("gpu-0")"#
)]
fn a_mark_without_cause_goes(#[case] states: &[&str], #[case] reason: &str, #[case] expected: &str) {
    assert_eq!(one(&cordoned_by(Some("scale-in")), states, reason).effects(), [expected]);
}
