use super::*;
use crate::plan::testing::minute;
use rstest::rstest;
use serde_json::json;
use slinky_api::conditions::PROGRESSING;

fn with(type_: &str, status: &str, reason: &str, message: &str) -> NodeSetStatus {
    let condition = json!({ "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": minute(0) });
    let condition = serde_json::from_value(condition).unwrap();
    NodeSetStatus { conditions: vec![condition], ..NodeSetStatus::default() }
}

#[rstest]
#[case::ready(None, with(READY, "True", "AsExpected", ""), true)]
#[case::not_ready_yet(None, with(READY, "False", "Creating", ""), false)]
#[case::not_ready_any_more(
    Some(with(READY, "True", "AsExpected", "")),
    with(READY, "False", "Creating", ""),
    true
)]
#[case::not_ready_for_another_reason(
    Some(with(READY, "False", "Creating", "a")),
    with(READY, "False", "Starting", "b"),
    false
)]
#[case::degraded(None, with(DEGRADED, "True", "Conflict", ""), true)]
#[case::not_degraded(None, with(DEGRADED, "False", "AsExpected", ""), false)]
#[case::degraded_for_another_reason(
    Some(with(DEGRADED, "True", "Conflict", "")),
    with(DEGRADED, "True", "Timeout", ""),
    true
)]
#[case::degraded_with_another_message(
    Some(with(DEGRADED, "True", "Conflict", "a")),
    with(DEGRADED, "True", "Conflict", "b"),
    false
)]
#[case::recovered(
    Some(with(DEGRADED, "True", "Conflict", "")),
    with(DEGRADED, "False", "AsExpected", ""),
    true
)]
#[case::slurm_answers_at_first(None, with(SLURM_REACHABLE, "True", "Answering", ""), false)]
#[case::slurm_unreachable(None, with(SLURM_REACHABLE, "Unknown", "NotAnswering", ""), true)]
#[case::slurm_unreachable_with_another_message(
    Some(with(SLURM_REACHABLE, "Unknown", "NotAnswering", "a")),
    with(SLURM_REACHABLE, "Unknown", "NotAnswering", "b"),
    false
)]
#[case::slurm_not_polled_yet(None, with(SLURM_REACHABLE, "Unknown", "NotAskedYet", ""), false)]
#[case::slurm_answers_the_first_poll(
    Some(with(SLURM_REACHABLE, "Unknown", "NotAskedYet", "")),
    with(SLURM_REACHABLE, "True", "Answering", ""),
    false
)]
#[case::slurm_unreachable_at_the_first_poll(
    Some(with(SLURM_REACHABLE, "Unknown", "NotAskedYet", "")),
    with(SLURM_REACHABLE, "Unknown", "NotAnswering", ""),
    true
)]
#[case::slurm_answers_again(
    Some(with(SLURM_REACHABLE, "Unknown", "NotAnswering", "a")),
    with(SLURM_REACHABLE, "True", "Answering", ""),
    true
)]
#[case::reserved(None, with(RESERVATION_CREATED, "True", "Created", "at noon"), true)]
#[case::moved(
    Some(with(RESERVATION_CREATED, "True", "Created", "at noon")),
    with(RESERVATION_CREATED, "True", "Created", "at night"),
    true
)]
#[case::ended(
    Some(with(RESERVATION_CREATED, "True", "Created", "at noon")),
    with(RESERVATION_CREATED, "False", "NotExists", "at noon"),
    true
)]
#[case::progressing(None, with(PROGRESSING, "True", "Creating", ""), false)]
fn only_transitions_are_published(
    #[case] before: Option<NodeSetStatus>,
    #[case] after: NodeSetStatus,
    #[case] expected: bool,
) {
    assert_eq!(condition_events(before.as_ref(), &after).len(), usize::from(expected));
    assert!(condition_events(Some(&after), &after).is_empty());
}

#[rstest]
#[case(READY, "True", true)]
#[case(READY, "False", false)]
#[case(SLURM_REACHABLE, "Unknown", false)]
#[case(DEGRADED, "True", false)]
#[case(DEGRADED, "False", true)]
#[case::waits_for_jobs(PARTITION_HELD, "True", true)]
#[case::may_be_removed(PARTITION_HELD, "False", true)]
fn conditions_without_the_desired_status_are_warnings(
    #[case] type_: &str,
    #[case] status: &str,
    #[case] desired: bool,
) {
    let status = with(type_, status, "R", "");
    assert_eq!(status.conditions.iter().map(is_desired).collect::<Vec<_>>(), [desired]);
}
