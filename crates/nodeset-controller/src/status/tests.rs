use super::*;
use crate::events::condition_events;
use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::conditions::find;
use std::sync::Arc;

mod sentences;

/// The status an hour after the pods were made, without trouble.
fn told(fixture: &Fixture) -> NodeSetStatus {
    told_at(fixture, &Execution::default(), 60)
}

fn told_at(fixture: &Fixture, effects: &Execution, minutes: i64) -> NodeSetStatus {
    let now = minute(minutes);
    status(&fixture.observed, &crate::plan::plan(&fixture.observed, now), effects, now)
}

/// The fixture as it looks to a process that was started a moment ago.
fn unasked(fixture: Fixture) -> Fixture {
    fixture.view(View::not_polled_yet("Slurm has not been polled yet".to_owned()))
}

/// The same fixture after its status was written.
fn written(fixture: Fixture, status: NodeSetStatus) -> Fixture {
    fixture.nodeset(|nodeset| nodeset.status = Some(status))
}

fn condition<'a>(status: &'a NodeSetStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found =
        find(&status.conditions, type_).unwrap_or_else(|| panic!("no {type_}: {:?}", status.conditions));
    (found.status.as_str(), found.reason.as_str(), found.message.as_str())
}

/// Types of the conditions that hold.
fn holding(status: &NodeSetStatus) -> Vec<&str> {
    let holding = status.conditions.iter().filter(|condition| condition.status == "True");
    holding.map(|condition| condition.type_.as_str()).collect()
}

fn replicas(count: i32) -> Fixture {
    Fixture::new(&json!({ "replicas": count }))
}

/// A pod like this is not ready.
fn unready() -> Value {
    json!({ "status": { "conditions": [] } })
}

/// Ready, and last seen in Slurm in this state.
fn seen(state: &str) -> Value {
    let seen = json!({ "type": format!("SlurmNodeState{state}"), "status": "True" });
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": minute(0) });
    json!({ "status": { "conditions": [ready, seen] } })
}

fn outdated() -> Value {
    json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } })
}

/// replicas, updated, ready, available, unavailable, desired
type Pods = [i32; 6];

fn pods(status: &NodeSetStatus) -> Pods {
    [
        status.replicas,
        status.updated_replicas,
        status.ready_replicas,
        status.available_replicas,
        status.unavailable_replicas,
        status.desired,
    ]
}

/// Two workers, both like this, unregistered.
fn two(change: &Value) -> Fixture {
    replicas(2).worker("gpu-0", change).worker("gpu-1", change)
}

#[rstest]
#[case::healthy(two(&json!({})), [2, 2, 2, 2, 0, 2])]
#[case::unready_and_old(two(&json!({ "metadata": outdated()["metadata"], "status": { "conditions": [] } })), [2, 0, 0, 0, 2, 2])]
#[case::not_running(two(&json!({ "status": { "phase": "Unknown" } })), [2, 2, 0, 0, 2, 2])]
#[case::nobody_looked_at_them(two(&json!({ "status": { "phase": "", "conditions": [] } })), [0, 0, 0, 0, 0, 2])]
#[case::terminating(two(&json!({ "metadata": { "deletionTimestamp": minute(50) } })), [2, 0, 2, 2, 0, 2])]
#[case::too_few(replicas(5).workers(2), [2, 2, 2, 2, 0, 5])]
#[case::too_many(replicas(0).workers(2), [2, 2, 2, 2, 0, 0])]
#[case::below_zero(replicas(-3), [0, 0, 0, 0, 0, 0])]
#[case::not_for_long_enough(Fixture::new(&json!({ "replicas": 2, "minReadySeconds": 3600 })).workers(2), [2, 2, 2, 0, 2, 2])]
#[case::for_long_enough(Fixture::new(&json!({ "replicas": 2, "minReadySeconds": 3599 })).workers(2), [2, 2, 2, 2, 0, 2])]
#[case::going(replicas(2).workers(2).nodeset(|nodeset| nodeset.metadata.deletion_timestamp =
    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(minute(0)))), [2, 2, 2, 2, 0, 0])]
#[case::on_three_nodes(Fixture::new(&json!({ "scalingMode": "DaemonSet" })).host("node-b", &json!({})).host("node-c", &json!({})),
    [0, 0, 0, 0, 3, 3])]
fn pods_are_counted(#[case] fixture: Fixture, #[case] expected: Pods) {
    assert_eq!(pods(&told(&fixture)), expected);
}

#[test]
fn the_controller_being_away_changes_no_wish() {
    let mut fixture = replicas(5).workers(2);
    fixture.observed.controller = None;
    let status = told(&fixture);
    assert_eq!(pods(&status), [2, 2, 2, 2, 0, 5]);
    let (holds, reason, message) = condition(&status, DEGRADED);
    assert_eq!((holds, reason, message), ("True", "ControllerMissing", "Controller slurm does not exist"));
    assert_eq!(condition(&status, READY), ("False", reason, message));
}

/// idle, allocated, down, drain
fn slurm(status: &NodeSetStatus) -> [i32; 4] {
    [status.slurm_idle, status.slurm_allocated, status.slurm_down, status.slurm_drain]
}

#[rstest]
#[case::idle(&["IDLE"], [1, 0, 0, 0])]
#[case::allocated(&["ALLOCATED"], [0, 1, 0, 0])]
#[case::mixed(&["MIXED", "COMPLETING"], [0, 1, 0, 0])]
#[case::down(&["DOWN", "NOT_RESPONDING"], [0, 0, 1, 0])]
#[case::drained(&["IDLE", "DRAIN"], [1, 0, 0, 1])]
#[case::draining(&["ALLOCATED", "DRAIN"], [0, 1, 0, 1])]
#[case::down_and_drained(&["DOWN", "DRAIN"], [0, 0, 1, 1])]
#[case::undrained(&["IDLE", "DRAIN", "UNDRAIN"], [1, 0, 0, 0])]
#[case::something_new(&["DYNAMIC_NORM", "POWERED_DOWN"], [0, 0, 0, 0])]
fn slurm_nodes_are_counted(#[case] states: &[&str], #[case] expected: [i32; 4]) {
    let fixture =
        replicas(1).workers(1).slurm("gpu-0", states, "a person").slurm("cpu-0", states, "a person");
    assert_eq!(slurm(&told(&fixture)), expected);
    let seen_before =
        written(fixture, NodeSetStatus { slurm_idle: 7, slurm_drain: 6, ..NodeSetStatus::default() });
    assert_eq!(slurm(&told(&seen_before.unknown())), [7, 0, 0, 6], "what is unknown stays as it was");
}

#[test]
fn without_slurm_there_are_no_slurm_nodes() {
    let before = NodeSetStatus { slurm_idle: 7, ..NodeSetStatus::default() };
    let status = told(&written(replicas(2).workers(2), before).view(View::NotExpected));
    assert_eq!((slurm(&status), find(&status.conditions, SLURM_REACHABLE)), ([0; 4], None));
    assert_eq!(condition(&status, READY).0, "True", "{status:?}");
}

#[test]
fn identity_is_told() {
    let mut fixture = Fixture::new(&json!({ "replicas": 2, "pinToNode": true })).workers(1);
    fixture = fixture.nodeset(|nodeset| nodeset.metadata.generation = Some(7));
    let status = told(&fixture);
    assert_eq!(status.selector, "app.kubernetes.io/instance=gpu,app.kubernetes.io/name=slurmd");
    assert_eq!((status.observed_generation, status.collision_count), (Some(7), Some(0)));
    assert_eq!(status.node_set_hash, fixture.plan().revisions.hash);
    assert_eq!(json!(status.ordinal_to_node), json!({ "0": "node-a" }));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(7)));
    let unpinned = written(fixture, status).nodeset(|nodeset| nodeset.spec.pin_to_node = false);
    assert_eq!(told(&unpinned).ordinal_to_node, None);
    let nobody = Fixture::new(&json!({ "replicas": 2, "pinToNode": true }));
    assert_eq!(told(&nobody).ordinal_to_node, None, "no pins yet");
}

#[rstest]
#[case::as_wished(replicas(2).workers(2), &[SLURM_REACHABLE, READY])]
#[case::nobody_wanted(replicas(0), &[SLURM_REACHABLE, READY])]
#[case::too_many(replicas(1).workers(2), &[SLURM_REACHABLE, READY, PROGRESSING])]
#[case::too_few(replicas(3).workers(2), &[SLURM_REACHABLE, PROGRESSING])]
#[case::not_available(replicas(2).workers(2).worker("gpu-1", &unready()), &[SLURM_REACHABLE, PROGRESSING])]
#[case::outdated(replicas(2).workers(2).worker("gpu-1", &outdated()), &[SLURM_REACHABLE, PROGRESSING])]
#[case::unregistered(replicas(2).workers(2).without_slurm_node("gpu-1"), &[SLURM_REACHABLE, PROGRESSING])]
#[case::slurm_is_silent(two(&seen("Idle")).unknown(), &[READY])]
#[case::slurm_never_answered(two(&json!({})).unknown(), &[PROGRESSING])]
#[case::slurm_had_no_time_to_answer(unasked(two(&json!({}))), &[PROGRESSING])]
#[case::impossible(replicas(100_000).workers(2), &[SLURM_REACHABLE, DEGRADED])]
fn conditions_hold_independently(#[case] fixture: Fixture, #[case] expected: &[&str]) {
    let status = told(&fixture);
    assert_eq!(holding(&status), expected, "{:?}", status.conditions);
}

#[test]
fn a_node_that_was_written_to_a_moment_ago_did_not_vanish() {
    let mut fixture = replicas(1).worker("gpu-0", &seen("Idle"));
    assert_eq!(condition(&told(&fixture), READY).1, "Registering");
    let View::Known(known) = &mut fixture.observed.slurm else { panic!() };
    known.uncertain.insert("gpu-0".to_owned());
    assert_eq!(condition(&told(&fixture), READY).0, "True");
}

#[rstest]
#[case::ready(replicas(2).workers(2))]
#[case::draining(replicas(1).workers(2).slurm("gpu-1", &["ALLOCATED"], ""))]
#[case::creating(replicas(9).workers(2))]
#[case::unknown(replicas(1).workers(2).unknown())]
#[case::scheduled(Fixture::new(&json!({ "replicas": 1, "updateStrategy": { "type": "ScheduledUpdate",
    "scheduledUpdate": { "startTime": minute(9000), "duration": "30m" } } })).workers(1).worker("gpu-0", &outdated()))]
fn nothing_is_written_when_nothing_changes(#[case] fixture: Fixture, #[values(true, false)] well: bool) {
    let trouble =
        Execution { errors: vec![("Conflict", "no".to_owned())], waiting: Some("later".to_owned()) };
    let effects = if well { Execution::default() } else { trouble };
    let before = told_at(&fixture, &effects, 60);
    let after = told_at(&written(fixture, before.clone()), &effects, 64);
    assert_eq!(after, before);
}

/// What a process that takes over sees at first of a NodeSet whose status says this.
#[rstest]
#[case::ready(replicas(2).workers(2))]
#[case::updating(replicas(2).workers(2).worker("gpu-1", &outdated()))]
#[case::draining(replicas(1).workers(2).slurm("gpu-1", &["ALLOCATED", "DRAIN"], "slurm-operator: scale-in"))]
#[case::registering(replicas(2).workers(2).without_slurm_node("gpu-1"))]
#[case::silent(replicas(1).workers(2).unknown())]
#[case::nobody_to_ask(replicas(2).workers(2).view(View::NotExpected))]
#[case::impossible(replicas(100_000).workers(2))]
fn a_process_that_had_no_time_to_ask_says_what_was_said(#[case] fixture: Fixture) {
    let before = told(&fixture);
    let restarted = unasked(written(fixture, before.clone()));
    let after = told_at(&restarted, &Execution::default(), 61);
    assert_eq!(after, before);
    assert_eq!(condition_events(Some(&before), &after), vec![]);
}

#[test]
fn what_pods_are_like_and_what_fails_is_told_before_slurm_was_asked() {
    let before = told(&replicas(2).workers(2));
    let lost = unasked(written(replicas(2).worker("gpu-0", &seen("Idle")), before.clone()));
    let status = told(&lost);
    assert_eq!((pods(&status)[0], condition(&status, READY).1), (1, "Creating"));
    assert_eq!(
        condition(&status, SLURM_REACHABLE),
        ("True", "Answering", "slurmrestd answers"),
        "nothing else is known"
    );

    let refused = Execution { errors: vec![("Rejected", "no".to_owned())], waiting: None };
    let failing = unasked(written(replicas(3).workers(2), told(&replicas(3).workers(2))));
    assert_eq!(condition(&told_at(&failing, &refused, 61), DEGRADED).1, "Rejected");

    let mut orphaned = unasked(written(replicas(2).workers(2), before));
    orphaned.observed.controller = None;
    assert_eq!(condition(&told(&orphaned), DEGRADED).1, "ControllerMissing");
}

#[test]
fn a_new_nodeset_says_that_slurm_was_not_asked_until_it_was() {
    let new = unasked(replicas(2).worker("gpu-0", &seen("Idle")));
    let status = told(&new);
    assert_eq!(
        condition(&status, SLURM_REACHABLE),
        ("Unknown", "NotAskedYet", "Slurm has not been polled yet")
    );
    assert_eq!(condition(&status, READY).1, "Creating");
    let next =
        unasked(written(replicas(2).worker("gpu-0", &seen("Idle")).worker("gpu-1", &seen("Idle")), status));
    assert_eq!(condition(&told(&next), READY).0, "True", "what is new is not mistaken for what was said");
}

fn with_condition(type_: &str, status: &str, reason: &str) -> NodeSetStatus {
    let condition = json!({ "type": type_, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": minute(0) });
    let conditions = vec![serde_json::from_value(condition).unwrap()];
    NodeSetStatus { conditions, ..NodeSetStatus::default() }
}

#[test]
fn numbers_can_wait_but_not_a_condition_nor_a_new_wish() {
    let before = told(&replicas(2).workers(1));
    assert!(changes_numbers_only(Some(&before), &NodeSetStatus { replicas: 7, ..before.clone() }));
    assert!(!changes_numbers_only(None, &before));
    assert!(!changes_numbers_only(
        Some(&before),
        &NodeSetStatus { observed_generation: Some(9), ..before.clone() }
    ));
    let ready = told(&replicas(1).workers(1));
    assert!(!changes_numbers_only(Some(&before), &ready), "{before:?} and {ready:?}");
}

#[rstest]
#[case::never_written(None, None)]
#[case::just_written(Some(0), Some(1000))]
#[case::a_moment_ago(Some(400), Some(600))]
#[case::a_pause_ago(Some(1000), None)]
#[case::by_a_clock_that_was_set_back(Some(-1), None)]
fn a_status_is_put_off_if_one_was_written(#[case] age: Option<i64>, #[case] left: Option<u64>) {
    let written = age.map(|age| minute(60) - SignedDuration::from_millis(age));
    let before = told(&replicas(2).workers(1));
    let numbers = NodeSetStatus { replicas: 7, ..before.clone() };
    let postpone = |after| postpone(written, Some(&before), after, minute(60));
    assert_eq!(postpone(&numbers), left.map(Duration::from_millis));
    assert_eq!(postpone(&told(&replicas(1).workers(1))), None, "a condition changed");
}
