use super::*;
use crate::plan::testing::minute;
use rstest::rstest;
use serde_json::json;
use slinky_api::conditions::PROGRESSING;

fn status_with(type_: &str, status: &str, reason: &str, message: &str) -> NodeSetStatus {
    let condition = json!({ "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": minute(0) });
    let condition = serde_json::from_value(condition).unwrap();
    NodeSetStatus { conditions: vec![condition], ..NodeSetStatus::default() }
}

#[rstest]
#[case::becomes_ready(None, status_with(READY, "True", "AsExpected", ""), true)]
#[case::not_ready_yet(None, status_with(READY, "False", "Creating", ""), false)]
#[case::no_longer_ready(
    Some(status_with(READY, "True", "AsExpected", "")),
    status_with(READY, "False", "Creating", ""),
    true
)]
#[case::not_ready_for_another_reason(
    Some(status_with(READY, "False", "Creating", "a")),
    status_with(READY, "False", "Starting", "b"),
    false
)]
#[case::becomes_degraded(None, status_with(DEGRADED, "True", "Conflict", ""), true)]
#[case::not_degraded(None, status_with(DEGRADED, "False", "AsExpected", ""), false)]
#[case::degraded_for_another_reason(
    Some(status_with(DEGRADED, "True", "Conflict", "")),
    status_with(DEGRADED, "True", "Timeout", ""),
    true
)]
#[case::degraded_with_another_message(
    Some(status_with(DEGRADED, "True", "Conflict", "a")),
    status_with(DEGRADED, "True", "Conflict", "b"),
    false
)]
#[case::no_longer_degraded(
    Some(status_with(DEGRADED, "True", "Conflict", "")),
    status_with(DEGRADED, "False", "AsExpected", ""),
    true
)]
#[case::slurm_answers_at_first(None, status_with(SLURM_REACHABLE, "True", "Answering", ""), false)]
#[case::slurm_unreachable(None, status_with(SLURM_REACHABLE, "Unknown", "NotAnswering", ""), true)]
#[case::slurm_unreachable_with_another_message(
    Some(status_with(SLURM_REACHABLE, "Unknown", "NotAnswering", "a")),
    status_with(SLURM_REACHABLE, "Unknown", "NotAnswering", "b"),
    false
)]
#[case::slurm_not_polled_yet(None, status_with(SLURM_REACHABLE, "Unknown", "NotAskedYet", ""), false)]
#[case::slurm_answers_the_first_poll(
    Some(status_with(SLURM_REACHABLE, "Unknown", "NotAskedYet", "")),
    status_with(SLURM_REACHABLE, "True", "Answering", ""),
    false
)]
#[case::slurm_unreachable_at_the_first_poll(
    Some(status_with(SLURM_REACHABLE, "Unknown", "NotAskedYet", "")),
    status_with(SLURM_REACHABLE, "Unknown", "NotAnswering", ""),
    true
)]
#[case::slurm_answers_again(
    Some(status_with(SLURM_REACHABLE, "Unknown", "NotAnswering", "a")),
    status_with(SLURM_REACHABLE, "True", "Answering", ""),
    true
)]
#[case::reservation_created(None, status_with(RESERVATION_CREATED, "True", "Created", "at noon"), true)]
#[case::reservation_moved(
    Some(status_with(RESERVATION_CREATED, "True", "Created", "at noon")),
    status_with(RESERVATION_CREATED, "True", "Created", "at night"),
    true
)]
#[case::reservation_ended(
    Some(status_with(RESERVATION_CREATED, "True", "Created", "at noon")),
    status_with(RESERVATION_CREATED, "False", "NotExists", "at noon"),
    true
)]
#[case::progressing(None, status_with(PROGRESSING, "True", "Creating", ""), false)]
fn event_is_published_for_a_transition_only(
    #[case] before: Option<NodeSetStatus>,
    #[case] after: NodeSetStatus,
    #[case] expected: bool,
) {
    assert_eq!(condition_events(before.as_ref(), &after).len(), usize::from(expected));
    assert!(condition_events(Some(&after), &after).is_empty());
}

#[rstest]
#[case::ready(READY, "True", true)]
#[case::not_ready(READY, "False", false)]
#[case::slurm_unreachable(SLURM_REACHABLE, "Unknown", false)]
#[case::degraded(DEGRADED, "True", false)]
#[case::not_degraded(DEGRADED, "False", true)]
#[case::partition_held(PARTITION_HELD, "True", true)]
#[case::partition_released(PARTITION_HELD, "False", true)]
fn conditions_without_the_desired_status_are_warnings(
    #[case] type_: &str,
    #[case] status: &str,
    #[case] desired: bool,
) {
    let status = status_with(type_, status, "R", "");
    assert_eq!(status.conditions.iter().map(is_desired).collect::<Vec<_>>(), [desired]);
}
