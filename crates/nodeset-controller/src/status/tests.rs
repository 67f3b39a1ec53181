use super::*;
use crate::events::condition_events;
use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use jiff::SignedDuration;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::conditions::find;
use std::sync::Arc;

mod messages;

/// The status an hour after the pods were created, without failed writes.
fn status_of(fixture: &Fixture) -> NodeSetStatus {
    status_at(fixture, &Execution::default(), 60)
}

fn status_at(fixture: &Fixture, effects: &Execution, minutes: i64) -> NodeSetStatus {
    let now = minute(minutes);
    status(&fixture.observed, &crate::plan::plan(&fixture.observed, now), effects, now)
}

/// The fixture as observed by a process that has not polled Slurm since its start.
fn not_polled_yet(fixture: Fixture) -> Fixture {
    fixture.view(View::not_polled_yet("Slurm has not been polled yet".to_owned()))
}

/// The fixture whose NodeSet has this status.
fn with_status(fixture: Fixture, status: NodeSetStatus) -> Fixture {
    fixture.nodeset(|nodeset| nodeset.status = Some(status))
}

fn condition<'a>(status: &'a NodeSetStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
    let found =
        find(&status.conditions, type_).unwrap_or_else(|| panic!("no {type_}: {:?}", status.conditions));
    (found.status.as_str(), found.reason.as_str(), found.message.as_str())
}

/// Types of the conditions that are True.
fn true_conditions(status: &NodeSetStatus) -> Vec<&str> {
    let conditions = status.conditions.iter().filter(|condition| condition.status == "True");
    conditions.map(|condition| condition.type_.as_str()).collect()
}

fn replicas(count: i32) -> Fixture {
    Fixture::new(&json!({ "replicas": count }))
}

/// Change of a pod: not ready.
fn unready() -> Value {
    json!({ "status": { "conditions": [] } })
}

/// Change of a pod: ready, and registered in Slurm with this state when Slurm last answered.
fn registered(state: &str) -> Value {
    let slurm_state = json!({ "type": format!("SlurmNodeState{state}"), "status": "True" });
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": minute(0) });
    json!({ "status": { "conditions": [ready, slurm_state] } })
}

/// Change of a pod: of an old revision.
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

/// Two workers with the same change, not registered in Slurm.
fn two_workers(change: &Value) -> Fixture {
    replicas(2).worker("gpu-0", change).worker("gpu-1", change)
}

#[rstest]
#[case::ready(two_workers(&json!({})), [2, 2, 2, 2, 0, 2])]
#[case::not_ready_and_outdated(
    two_workers(&json!({ "metadata": outdated()["metadata"], "status": { "conditions": [] } })), [2, 0, 0, 0, 2, 2])]
#[case::phase_unknown(two_workers(&json!({ "status": { "phase": "Unknown" } })), [2, 2, 0, 0, 2, 2])]
#[case::without_phase(two_workers(&json!({ "status": { "phase": "", "conditions": [] } })), [0, 0, 0, 0, 0, 2])]
#[case::terminating(two_workers(&json!({ "metadata": { "deletionTimestamp": minute(50) } })), [2, 0, 2, 2, 0, 2])]
#[case::fewer_than_desired(replicas(5).workers(2), [2, 2, 2, 2, 0, 5])]
#[case::more_than_desired(replicas(0).workers(2), [2, 2, 2, 2, 0, 0])]
#[case::negative_replicas(replicas(-3), [0, 0, 0, 0, 0, 0])]
#[case::ready_for_less_than_min_ready_seconds(
    Fixture::new(&json!({ "replicas": 2, "minReadySeconds": 3600 })).workers(2), [2, 2, 2, 0, 2, 2])]
#[case::ready_for_min_ready_seconds(
    Fixture::new(&json!({ "replicas": 2, "minReadySeconds": 3599 })).workers(2), [2, 2, 2, 2, 0, 2])]
#[case::nodeset_being_deleted(replicas(2).workers(2).nodeset(|nodeset| nodeset.metadata.deletion_timestamp =
    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(minute(0)))), [2, 2, 2, 2, 0, 0])]
#[case::daemon_set_mode_without_pods_on_three_nodes(
    Fixture::new(&json!({ "scalingMode": "DaemonSet" })).host("node-b", &json!({})).host("node-c", &json!({})),
    [0, 0, 0, 0, 3, 3])]
fn pods_are_counted_by_state(#[case] fixture: Fixture, #[case] expected: Pods) {
    assert_eq!(pods(&status_of(&fixture)), expected);
}

#[test]
fn missing_controller_degrades_but_keeps_the_desired_number() {
    let mut fixture = replicas(5).workers(2);
    fixture.observed.controller = None;
    let status = status_of(&fixture);
    assert_eq!(pods(&status), [2, 2, 2, 2, 0, 5]);
    let (degraded, reason, message) = condition(&status, DEGRADED);
    assert_eq!((degraded, reason, message), ("True", "ControllerMissing", "Controller slurm does not exist"));
    assert_eq!(condition(&status, READY), ("False", reason, message));
}

/// idle, allocated, down, drain
fn slurm(status: &NodeSetStatus) -> [i32; 4] {
    [status.slurm_idle, status.slurm_allocated, status.slurm_down, status.slurm_drain]
}

#[rstest]
#[case::idle(&["IDLE"], [1, 0, 0, 0])]
#[case::allocated(&["ALLOCATED"], [0, 1, 0, 0])]
#[case::mixed_counts_as_allocated(&["MIXED", "COMPLETING"], [0, 1, 0, 0])]
#[case::down(&["DOWN", "NOT_RESPONDING"], [0, 0, 1, 0])]
#[case::drained(&["IDLE", "DRAIN"], [1, 0, 0, 1])]
#[case::draining(&["ALLOCATED", "DRAIN"], [0, 1, 0, 1])]
#[case::down_and_drained(&["DOWN", "DRAIN"], [0, 0, 1, 1])]
#[case::undrain_cancels_drain(&["IDLE", "DRAIN", "UNDRAIN"], [1, 0, 0, 0])]
#[case::other_states_are_not_counted(&["DYNAMIC_NORM", "POWERED_DOWN"], [0, 0, 0, 0])]
fn slurm_nodes_are_counted_by_state(#[case] states: &[&str], #[case] expected: [i32; 4]) {
    let fixture =
        replicas(1).workers(1).slurm("gpu-0", states, "by a user").slurm("cpu-0", states, "by a user");
    assert_eq!(slurm(&status_of(&fixture)), expected);
    let unreachable =
        with_status(fixture, NodeSetStatus { slurm_idle: 7, slurm_drain: 6, ..NodeSetStatus::default() });
    assert_eq!(
        slurm(&status_of(&unreachable.unknown())),
        [7, 0, 0, 6],
        "the counts stay while Slurm is unreachable"
    );
}

#[test]
fn without_restapi_slurm_counts_are_zero_and_slurm_reachable_is_removed() {
    let before = NodeSetStatus { slurm_idle: 7, ..NodeSetStatus::default() };
    let status = status_of(&with_status(replicas(2).workers(2), before).view(View::NoRestApi));
    assert_eq!((slurm(&status), find(&status.conditions, SLURM_REACHABLE)), ([0; 4], None));
    assert_eq!(condition(&status, READY).0, "True", "{status:?}");
}

#[test]
fn selector_generation_hash_and_pins_are_reported() {
    let mut fixture = Fixture::new(&json!({ "replicas": 2, "pinToNode": true })).workers(1);
    fixture = fixture.nodeset(|nodeset| nodeset.metadata.generation = Some(7));
    let status = status_of(&fixture);
    assert_eq!(status.selector, "app.kubernetes.io/instance=gpu,app.kubernetes.io/name=slurmd");
    assert_eq!((status.observed_generation, status.collision_count), (Some(7), Some(0)));
    assert_eq!(status.node_set_hash, fixture.plan().revisions.hash);
    assert_eq!(json!(status.ordinal_to_node), json!({ "0": "node-a" }));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(7)));
    let unpinned = with_status(fixture, status).nodeset(|nodeset| nodeset.spec.pin_to_node = false);
    assert_eq!(status_of(&unpinned).ordinal_to_node, None);
    let without_pods = Fixture::new(&json!({ "replicas": 2, "pinToNode": true }));
    assert_eq!(status_of(&without_pods).ordinal_to_node, None, "no worker is pinned yet");
}

#[rstest]
#[case::as_desired(replicas(2).workers(2), &[SLURM_REACHABLE, READY])]
#[case::zero_replicas(replicas(0), &[SLURM_REACHABLE, READY])]
#[case::surplus_worker(replicas(1).workers(2), &[SLURM_REACHABLE, READY, PROGRESSING])]
#[case::missing_worker(replicas(3).workers(2), &[SLURM_REACHABLE, PROGRESSING])]
#[case::worker_not_available(replicas(2).workers(2).worker("gpu-1", &unready()), &[SLURM_REACHABLE, PROGRESSING])]
#[case::worker_outdated(replicas(2).workers(2).worker("gpu-1", &outdated()), &[SLURM_REACHABLE, PROGRESSING])]
#[case::worker_not_registered(replicas(2).workers(2).without_slurm_node("gpu-1"), &[SLURM_REACHABLE, PROGRESSING])]
#[case::registered_workers_while_slurm_is_unreachable(two_workers(&registered("Idle")).unknown(), &[READY])]
#[case::unregistered_workers_while_slurm_is_unreachable(two_workers(&json!({})).unknown(), &[PROGRESSING])]
#[case::slurm_not_polled_yet(not_polled_yet(two_workers(&json!({}))), &[PROGRESSING])]
#[case::too_many_replicas(replicas(100_000).workers(2), &[SLURM_REACHABLE, DEGRADED])]
fn ready_progressing_and_degraded_are_set_independently(#[case] fixture: Fixture, #[case] expected: &[&str]) {
    let status = status_of(&fixture);
    assert_eq!(true_conditions(&status), expected, "{:?}", status.conditions);
}

#[test]
fn slurm_node_with_a_recent_write_still_counts_as_registered() {
    let mut fixture = replicas(1).worker("gpu-0", &registered("Idle"));
    assert_eq!(condition(&status_of(&fixture), READY).1, "Registering");
    let View::Known(known) = &mut fixture.observed.slurm else { panic!() };
    known.uncertain.insert("gpu-0".to_owned());
    assert_eq!(condition(&status_of(&fixture), READY).0, "True");
}

#[rstest]
#[case::ready(replicas(2).workers(2))]
#[case::draining(replicas(1).workers(2).slurm("gpu-1", &["ALLOCATED"], ""))]
#[case::creating(replicas(9).workers(2))]
#[case::slurm_unreachable(replicas(1).workers(2).unknown())]
#[case::update_scheduled(Fixture::new(&json!({ "replicas": 1, "updateStrategy": { "type": "ScheduledUpdate",
    "scheduledUpdate": { "startTime": minute(9000), "duration": "30m" } } })).workers(1).worker("gpu-0", &outdated()))]
fn status_is_unchanged_while_nothing_changes(
    #[case] fixture: Fixture,
    #[values(true, false)] succeeds: bool,
) {
    let failed = Execution { errors: vec![("Conflict", "no".to_owned())], waiting: Some("later".to_owned()) };
    let effects = if succeeds { Execution::default() } else { failed };
    let before = status_at(&fixture, &effects, 60);
    let after = status_at(&with_status(fixture, before.clone()), &effects, 64);
    assert_eq!(after, before);
}

/// A process that takes over leaves the conditions as they are, and publishes no Event, until it has polled Slurm.
#[rstest]
#[case::ready(replicas(2).workers(2))]
#[case::updating(replicas(2).workers(2).worker("gpu-1", &outdated()))]
#[case::draining(replicas(1).workers(2).slurm("gpu-1", &["ALLOCATED", "DRAIN"], "slurm-operator: scale-in"))]
#[case::registering(replicas(2).workers(2).without_slurm_node("gpu-1"))]
#[case::slurm_unreachable(replicas(1).workers(2).unknown())]
#[case::without_restapi(replicas(2).workers(2).view(View::NoRestApi))]
#[case::too_many_replicas(replicas(100_000).workers(2))]
fn restart_keeps_the_status_until_slurm_is_polled(#[case] fixture: Fixture) {
    let before = status_of(&fixture);
    let restarted = not_polled_yet(with_status(fixture, before.clone()));
    let after = status_at(&restarted, &Execution::default(), 61);
    assert_eq!(after, before);
    assert_eq!(condition_events(Some(&before), &after), vec![]);
}

#[test]
fn pod_changes_and_errors_are_reported_before_slurm_is_polled() {
    let before = status_of(&replicas(2).workers(2));
    let pod_lost =
        not_polled_yet(with_status(replicas(2).worker("gpu-0", &registered("Idle")), before.clone()));
    let status = status_of(&pod_lost);
    assert_eq!((pods(&status)[0], condition(&status, READY).1), (1, "Creating"));
    assert_eq!(
        condition(&status, SLURM_REACHABLE),
        ("True", "Answering", "slurmrestd answers"),
        "kept until Slurm is polled"
    );

    let rejected = Execution { errors: vec![("Rejected", "no".to_owned())], waiting: None };
    let failing = not_polled_yet(with_status(replicas(3).workers(2), status_of(&replicas(3).workers(2))));
    assert_eq!(condition(&status_at(&failing, &rejected, 61), DEGRADED).1, "Rejected");

    let mut without_controller = not_polled_yet(with_status(replicas(2).workers(2), before));
    without_controller.observed.controller = None;
    assert_eq!(condition(&status_of(&without_controller), DEGRADED).1, "ControllerMissing");
}

#[test]
fn new_nodeset_reports_slurm_not_polled_and_still_becomes_ready() {
    let new = not_polled_yet(replicas(2).worker("gpu-0", &registered("Idle")));
    let status = status_of(&new);
    assert_eq!(
        condition(&status, SLURM_REACHABLE),
        ("Unknown", "NotAskedYet", "Slurm has not been polled yet")
    );
    assert_eq!(condition(&status, READY).1, "Creating");
    let next = not_polled_yet(with_status(
        replicas(2).worker("gpu-0", &registered("Idle")).worker("gpu-1", &registered("Idle")),
        status,
    ));
    assert_eq!(
        condition(&status_of(&next), READY).0,
        "True",
        "conditions of before the first poll are not kept"
    );
}

fn with_condition(type_: &str, status: &str, reason: &str) -> NodeSetStatus {
    let condition = json!({ "type": type_, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": minute(0) });
    let conditions = vec![serde_json::from_value(condition).unwrap()];
    NodeSetStatus { conditions, ..NodeSetStatus::default() }
}

#[test]
fn only_changes_of_numbers_may_be_postponed() {
    let before = status_of(&replicas(2).workers(1));
    assert!(changes_numbers_only(Some(&before), &NodeSetStatus { replicas: 7, ..before.clone() }));
    assert!(!changes_numbers_only(None, &before));
    assert!(!changes_numbers_only(
        Some(&before),
        &NodeSetStatus { observed_generation: Some(9), ..before.clone() }
    ));
    let ready = status_of(&replicas(1).workers(1));
    assert!(!changes_numbers_only(Some(&before), &ready), "{before:?} and {ready:?}");
}

#[rstest]
#[case::never_written(None, None)]
#[case::just_written(Some(0), Some(1000))]
#[case::written_less_than_a_pause_ago(Some(400), Some(600))]
#[case::written_a_pause_ago(Some(1000), None)]
#[case::written_in_the_future(Some(-1), None)]
fn change_of_numbers_is_postponed_until_a_pause_has_passed(
    #[case] age: Option<i64>,
    #[case] left: Option<u64>,
) {
    let last_write = age.map(|age| minute(60) - SignedDuration::from_millis(age));
    let before = status_of(&replicas(2).workers(1));
    let numbers = NodeSetStatus { replicas: 7, ..before.clone() };
    let postpone = |after| postpone(last_write, Some(&before), after, minute(60));
    assert_eq!(postpone(&numbers), left.map(Duration::from_millis));
    assert_eq!(postpone(&status_of(&replicas(1).workers(1))), None, "a condition changed");
}
