//! Eviction protection while Slurm is unreachable.

use crate::plan::fixture::Fixture;
use crate::slurm::View;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::labels::POD_PROTECT;
use std::time::Duration;

/// A worker whose Slurm node was last observed in this state, if ever.
fn last_seen(state: Option<&str>, protected: bool) -> Value {
    let ready =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": crate::plan::testing::minute(0) });
    let state = state.map(|state| json!({ "type": format!("SlurmNodeState{state}"), "status": "True" }));
    let conditions: Vec<_> = [ready].into_iter().chain(state).collect();
    let mut worker = json!({ "status": { "conditions": conditions } });
    if protected {
        worker["metadata"]["labels"][POD_PROTECT] = json!("true");
    }
    worker
}

/// Slurm has been unreachable for this long.
fn unreachable(fixture: Fixture, seconds: u64) -> Fixture {
    let mut fixture = fixture.unknown();
    fixture.observed.unreachable_for = Duration::from_secs(seconds);
    fixture
}

/// The same, and the RestApi was deleted since.
fn without_restapi(fixture: Fixture, seconds: u64) -> Fixture {
    unreachable(fixture, seconds).view(View::NoRestApi)
}

/// The change of the label of `gpu-0`.
fn change(fixture: &Fixture) -> &'static str {
    let mirrors = fixture.plan().pod_mirrors;
    match mirrors.iter().find_map(|mirror| mirror.labels.get(POD_PROTECT)) {
        None => "unchanged",
        Some(None) => "removed",
        Some(Some(_)) => "set",
    }
}

#[rstest]
#[case::short_outage(Some("Idle"), 89, "unchanged")]
#[case::long_outage(Some("Idle"), 90, "set")]
#[case::long_outage_and_down(Some("Down"), 90, "set")]
#[case::never_registered(None, 90, "unchanged")]
fn registered_worker_is_protected_after_a_long_outage(
    #[case] state: Option<&str>,
    #[case] seconds: u64,
    #[case] expected: &str,
) {
    for unreachable in [unreachable, without_restapi] {
        let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &last_seen(state, false));
        assert_eq!(change(&unreachable(fixture, seconds)), expected);
    }
}

#[test]
fn idle_worker_is_unprotected_when_slurm_answers() {
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &last_seen(Some("Idle"), true));
    assert_eq!(change(&unreachable(fixture, 300)), "unchanged", "the label is set");
    let fixture = Fixture::new(&json!({ "replicas": 1 }))
        .worker("gpu-0", &last_seen(Some("Idle"), true))
        .slurm("gpu-0", &["IDLE"], "");
    assert_eq!(change(&fixture), "removed");
}

#[test]
fn outage_without_protection_changes_nothing() {
    let spec = json!({ "replicas": 1, "workloadDisruptionProtection": false });
    let fixture = Fixture::new(&spec).worker("gpu-0", &last_seen(Some("Idle"), false));
    assert_eq!(change(&unreachable(fixture, 300)), "unchanged");
}

#[test]
fn never_registered_worker_without_restapi_is_not_protected() {
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &last_seen(None, false));
    assert_eq!(change(&without_restapi(fixture, 300)), "unchanged");
}

#[rstest]
#[case::soon(Some("Idle"), false, 30, Some(60))]
#[case::already_protected(Some("Idle"), true, 30, None)]
#[case::already_due(Some("Idle"), false, 90, None)]
#[case::never_registered(None, false, 30, None)]
fn protection_is_requeued_in_time(
    #[case] state: Option<&str>,
    #[case] protected: bool,
    #[case] unreachable_for: u64,
    #[case] requeue_after: Option<u64>,
) {
    for unreachable in [unreachable, without_restapi] {
        let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &last_seen(state, protected));
        assert_eq!(
            unreachable(fixture, unreachable_for).plan().requeue_after,
            requeue_after.map(Duration::from_secs)
        );
    }
}
