//! Whom an eviction must not take while Slurm is silent.

use crate::plan::fixture::Fixture;
use crate::slurm::View;
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::labels::POD_PROTECT;
use std::time::Duration;

/// A worker whose Slurm node was last seen in this state, if it ever was.
fn seen(state: Option<&str>, protected: bool) -> Value {
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

/// Slurm has been silent for so long.
fn silent(fixture: Fixture, seconds: u64) -> Fixture {
    let mut fixture = fixture.unknown();
    fixture.observed.unreachable_for = Duration::from_secs(seconds);
    fixture
}

/// The same, and by now there is nobody who could be asked.
fn given_up(fixture: Fixture, seconds: u64) -> Fixture {
    silent(fixture, seconds).view(View::NotExpected)
}

/// What becomes of the label of `gpu-0`.
fn change(fixture: &Fixture) -> &'static str {
    let mirrors = fixture.plan().pod_mirrors;
    match mirrors.iter().find_map(|mirror| mirror.labels.get(POD_PROTECT)) {
        None => "stays",
        Some(None) => "goes",
        Some(Some(_)) => "comes",
    }
}

#[rstest]
#[case::a_hiccup(Some("Idle"), 89, "stays")]
#[case::for_long(Some("Idle"), 90, "comes")]
#[case::for_long_and_down(Some("Down"), 90, "comes")]
#[case::never_seen(None, 90, "stays")]
fn whoever_was_seen_in_slurm_is_protected_once_slurm_is_silent_for_long(
    #[case] state: Option<&str>,
    #[case] seconds: u64,
    #[case] expected: &str,
) {
    for silent in [silent, given_up] {
        let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &seen(state, false));
        assert_eq!(change(&silent(fixture, seconds)), expected);
    }
}

#[test]
fn an_idle_worker_is_free_again_when_slurm_says_so() {
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &seen(Some("Idle"), true));
    assert_eq!(change(&silent(fixture, 300)), "stays", "it has the label");
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &seen(Some("Idle"), true)).slurm(
        "gpu-0",
        &["IDLE"],
        "",
    );
    assert_eq!(change(&fixture), "goes");
}

#[test]
fn where_workers_are_not_protected_silence_changes_nothing() {
    let spec = json!({ "replicas": 1, "workloadDisruptionProtection": false });
    let fixture = Fixture::new(&spec).worker("gpu-0", &seen(Some("Idle"), false));
    assert_eq!(change(&silent(fixture, 300)), "stays");
}

#[test]
fn where_slurm_was_never_expected_nobody_is_protected_from_it() {
    let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &seen(None, false));
    assert_eq!(change(&given_up(fixture, 300)), "stays");
}

#[rstest]
#[case::soon(Some("Idle"), false, 30, Some(60))]
#[case::done(Some("Idle"), true, 30, None)]
#[case::over(Some("Idle"), false, 90, None)]
#[case::never_seen(None, false, 30, None)]
fn the_moment_is_not_missed(
    #[case] state: Option<&str>,
    #[case] protected: bool,
    #[case] unreachable_for: u64,
    #[case] again: Option<u64>,
) {
    for silent in [silent, given_up] {
        let fixture = Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &seen(state, protected));
        assert_eq!(silent(fixture, unreachable_for).plan().requeue_after, again.map(Duration::from_secs));
    }
}
