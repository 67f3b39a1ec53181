//! Scaling: which workers are created and removed.

use crate::plan::fixture::Fixture;
use crate::plan::update::Allowance;
use crate::plan::{NodeSetObstacle, Obstacle, WaitFor};
use rstest::rstest;
use serde_json::json;
use slurm_rest::Deadline;

const DRAINING: &str = " and drain: slurm-operator: Pod (ns/gpu-";

#[test]
fn missing_workers_get_the_lowest_free_ordinals() {
    let fixture = Fixture::new(&json!({ "replicas": 4 })).worker("gpu-1", &json!({}));
    assert_eq!(fixture.effects(), ["create gpu-0", "create gpu-2", "create gpu-3"]);
}

#[test]
fn missing_controller_blocks_creation_and_removal() {
    let mut fixture = Fixture::new(&json!({ "replicas": 2 })).workers(4);
    fixture.observed.controller = None;
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(matches!(plan.obstacles.as_slice(), [Obstacle::Missing(_)]), "{:?}", plan.obstacles);
}

#[test]
fn no_pod_is_created_before_the_finalizer_is_set() {
    let fixture =
        Fixture::new(&json!({ "replicas": 2 })).nodeset(|nodeset| nodeset.metadata.finalizers = None);
    assert!(fixture.effects().is_empty());
    assert_eq!(fixture.plan().metadata.unwrap().finalizers.unwrap(), ["nodeset.slinky.slurm.net/workers"]);
}

#[test]
fn creates_per_plan_are_limited() {
    assert_eq!(Fixture::new(&json!({ "replicas": 1000 })).effects().len(), 250);
}

#[rstest]
#[case::excessive(2_000_000_000)]
#[case::negative(-1)]
fn invalid_replicas_are_rejected_without_effects(#[case] replicas: i32) {
    let fixture = Fixture::new(&json!({ "replicas": replicas })).workers(2);
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(matches!(plan.obstacles.as_slice(), [Obstacle::Specific(NodeSetObstacle::Replicas(_))]));
}

#[test]
fn worker_of_unknown_mode_stays() {
    let unknown = json!({ "metadata": { "labels": { "nodeset.slinky.slurm.net/scaling-mode": "" } } });
    let fixture = Fixture::new(&json!({ "replicas": 2 }))
        .worker("gpu-0", &unknown)
        .worker("odd", &unknown)
        .slurm("gpu-0", &["IDLE"], "")
        .slurm("odd", &["IDLE"], "");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn up_to_date_workers_have_no_effects() {
    let plan = Fixture::new(&json!({ "replicas": 2 })).workers(2).plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
}

#[test]
fn surplus_workers_are_cordoned_highest_ordinal_first() {
    let effects = Fixture::new(&json!({ "replicas": 1 })).workers(3).effects();
    let expected = ["mark gpu-2 for scale-in", "mark gpu-1 for scale-in"];
    for (effect, expected) in effects.iter().zip(expected) {
        assert!(effect.starts_with(&format!("{expected}{DRAINING}")), "{effect}");
        assert!(effect.ends_with("is pending termination for scale-in"), "{effect}");
    }
    assert_eq!(effects.len(), 2);
}

/// Three busy workers; only the last two have the deadline annotation yet.
fn partly_annotated() -> Fixture {
    let annotated = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-deadline": "9999-01-01T00:00:00Z" } } });
    ["gpu-0", "gpu-1", "gpu-2"].iter().fold(Fixture::new(&json!({ "replicas": 1 })), |fixture, name| {
        let pod = if *name == "gpu-0" { &json!({}) } else { &annotated };
        fixture.worker(name, pod).slurm(name, &["ALLOCATED"], "")
    })
}

#[rstest]
#[case::all_jobs_without_end(
    ["gpu-0", "gpu-1", "gpu-2"].iter().fold(partly_annotated(), |fixture, name| fixture.job_until(name, Deadline::Never)),
    &["gpu-2", "gpu-1"],
)]
#[case::jobs_not_listed(partly_annotated().slurm("gpu-1", &["IDLE"], ""), &["gpu-1", "gpu-0"])]
fn live_jobs_count_before_the_pod_annotation(#[case] fixture: Fixture, #[case] removed: &[&str]) {
    let effects = fixture.effects();
    let marked: Vec<_> = effects.iter().filter_map(|effect| effect.split_whitespace().nth(1)).collect();
    assert_eq!(marked, removed, "{effects:?}");
}

fn marked(cause: &str) -> serde_json::Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": cause } } })
}

#[test]
fn marked_worker_stays_chosen_when_a_late_job_starts() {
    let fixture = Fixture::new(&json!({ "replicas": 2 }))
        .workers(3)
        .worker("gpu-1", &marked("scale-in"))
        .slurm("gpu-1", &["MIXED", "DRAIN"], "slurm-operator: x");
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert_eq!(plan.waiting[0].pod, "gpu-1");
    assert_eq!(plan.waiting[0].for_, WaitFor::Drain);
}

#[test]
fn drained_worker_is_deleted_with_evidence() {
    let fixture = Fixture::new(&json!({ "replicas": 2 }))
        .workers(3)
        .worker("gpu-2", &marked("scale-in"))
        .slurm("gpu-2", &["IDLE", "DRAIN"], "slurm-operator: x");
    assert_eq!(fixture.effects(), ["delete gpu-2 (Surplus, drained)"]);
}

#[test]
fn worker_needed_again_is_uncordoned() {
    let fixture = Fixture::new(&json!({ "replicas": 3 }))
        .workers(3)
        .worker("gpu-2", &marked("scale-in"))
        .slurm("gpu-2", &["IDLE", "DRAIN"], "slurm-operator: x");
    assert_eq!(fixture.effects(), [r#"unmark gpu-2 Undrain("gpu-2")"#]);
}

#[rstest]
#[case::terminating(json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }))]
#[case::failed_and_waiting(json!({ "status": { "phase": "Failed" } }))]
fn no_pod_is_created_while_its_predecessor_exists(#[case] change: serde_json::Value) {
    let mut fixture = Fixture::new(&json!({ "replicas": 2 })).workers(2).worker("gpu-1", &change);
    fixture.observed.retry_times.insert("gpu-1".to_owned(), crate::plan::testing::minute(61));
    let effects = fixture.effects();
    assert!(!effects.iter().any(|effect| effect.starts_with("create")), "{effects:?}");
}

#[test]
fn terminating_pod_counts_as_removed() {
    let terminating = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
    let fixture = Fixture::new(&json!({ "replicas": 2 })).workers(3).worker("gpu-2", &terminating).slurm(
        "gpu-2",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[rstest]
#[case::failed("Failed", "delete gpu-1 (Failed, no evidence needed)")]
#[case::succeeded("Succeeded", "delete gpu-1 (Succeeded, no evidence needed)")]
fn finished_pod_is_deleted(#[case] phase: &str, #[case] expected: &str) {
    let fixture = Fixture::new(&json!({ "replicas": 2 }))
        .workers(2)
        .worker("gpu-1", &json!({ "status": { "phase": phase, "conditions": [] } }));
    assert_eq!(fixture.effects(), [expected]);
}

#[test]
fn failed_pod_is_deleted_after_its_backoff() {
    let mut fixture =
        Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &json!({ "status": { "phase": "Failed" } }));
    fixture.observed.retry_times.insert("gpu-0".to_owned(), crate::plan::testing::minute(61));
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert_eq!(plan.requeue_after, Some(std::time::Duration::from_secs(61)));
}

/// Another replica or process may find the pod.
#[test]
fn pod_that_replaces_a_failed_one_tells_its_delay() {
    let delay_of = |fixture: &Fixture| {
        let effects = fixture.plan().effects;
        let [crate::plan::Effect::CreatePod(new)] = effects.as_slice() else { panic!("{effects:?}") };
        new.pod["metadata"]["annotations"].get("nodeset.slinky.slurm.net/pod-retry-delay").cloned()
    };
    let mut fixture = Fixture::new(&json!({ "replicas": 1 }));
    assert_eq!(delay_of(&fixture), None);
    fixture.observed.retry_delays.insert("gpu-0".to_owned(), jiff::SignedDuration::from_secs(8));
    assert_eq!(delay_of(&fixture), Some(json!("8")));
}

/// Adding to the maximum timestamp overflows.
#[rstest]
#[case::registered(true)]
#[case::unregistered(false)]
fn ready_time_at_the_maximum_does_not_overflow(#[case] registered: bool) {
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::MAX });
    let mut fixture = Fixture::new(&json!({ "replicas": 1, "minReadySeconds": i32::MAX }))
        .worker("gpu-0", &json!({ "status": { "conditions": [ready] } }));
    if registered {
        fixture = fixture.slurm("gpu-0", &["IDLE"], "");
    }
    assert!(fixture.plan().requeue_after.is_some());
}

#[test]
fn huge_percentage_allows_all_workers_to_be_unavailable() {
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": format!("{}%", usize::MAX) } });
    let fixture = Fixture::new(&json!({ "replicas": 3, "updateStrategy": strategy }));
    assert_eq!(Allowance::of(&fixture.observed.nodeset, 3).floor(), 0);
}

#[test]
fn workers_of_the_other_mode_are_removed_first() {
    let daemon = json!({ "metadata": { "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet" } },
        "spec": { "hostname": "node-a" } });
    let fixture =
        Fixture::new(&json!({ "replicas": 1 })).worker("gpu-nx", &daemon).slurm("node-a", &["IDLE"], "");
    let effects = fixture.effects();
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert!(effects[0].starts_with("mark gpu-nx for scale-in"), "{effects:?}");
}

#[test]
fn template_error_is_reported_and_workers_stay() {
    let fixture = Fixture::new(&json!({ "replicas": 3, "extraConf": "Weight10" })).workers(2);
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(matches!(plan.obstacles.as_slice(), [Obstacle::Invalid(_)]), "{:?}", plan.obstacles);
}

#[test]
fn orphan_is_adopted_and_unselected_pod_is_released() {
    let orphan = json!({ "metadata": { "ownerReferences": null } });
    let stray = json!({ "metadata": { "labels": { "app.kubernetes.io/name": "other" } } });
    let fixture =
        Fixture::new(&json!({ "replicas": 3 })).workers(3).worker("gpu-1", &orphan).worker("gpu-2", &stray);
    let effects = fixture.effects();
    assert_eq!(effects, ["adopt gpu-1", "release gpu-2", "create gpu-2"]);
}

#[rstest]
#[case::of_a_sibling("gpu-big-0", json!({ "metadata": { "ownerReferences": null } }))]
#[case::of_a_predecessor("gpu-0", json!({ "metadata": { "ownerReferences": [
    { "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "gpu", "uid": "older", "controller": true }] } }))]
fn pods_of_other_owners_are_ignored(#[case] name: &str, #[case] change: serde_json::Value) {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker(name, &change);
    let plan = fixture.plan();
    assert!(plan.effects.is_empty() && plan.workers.is_empty(), "{:?}", plan.effects);
}

#[test]
fn zero_replicas_without_pods_have_no_effects() {
    let plan = Fixture::new(&json!({ "replicas": 0 })).plan();
    assert!(plan.effects.is_empty() && plan.waiting.is_empty() && plan.obstacles.is_empty());
    assert_eq!((plan.desired, plan.requeue_after), (0, None));
}

#[rstest]
#[case::failed("Failed")]
#[case::succeeded("Succeeded")]
fn terminating_finished_pod_is_not_deleted_again(#[case] phase: &str) {
    let finished = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" },
        "status": { "phase": phase, "conditions": [] } });
    let fixture = Fixture::new(&json!({ "replicas": 2 })).workers(2).worker("gpu-1", &finished);
    assert_eq!(fixture.effects(), ["drain gpu-1: slurm-operator: Pod is terminating"]);
}

#[test]
fn earliest_requeue_wins() {
    let failed = json!({ "status": { "phase": "Failed" } });
    let mut fixture =
        Fixture::new(&json!({ "replicas": 3 })).workers(3).worker("gpu-0", &failed).worker("gpu-1", &failed);
    fixture.observed.retry_times.insert("gpu-0".to_owned(), crate::plan::testing::minute(900));
    fixture.observed.retry_times.insert("gpu-1".to_owned(), crate::plan::testing::minute(61));
    assert_eq!(fixture.plan().requeue_after, Some(std::time::Duration::from_secs(61)));
}

/// The marked workers rank behind the others now, and are removed nevertheless.
#[rstest]
#[case::cheaper(json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/pod-deletion-cost": "-10" } } }))]
#[case::not_ready(json!({ "status": { "conditions": [] } }))]
#[case::not_bound(json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [] } }))]
#[case::cordoned_by_a_person(json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/pod-cordon": "true" } } }))]
fn marked_workers_stay_chosen_when_others_become_cheaper(#[case] change: serde_json::Value) {
    let mut chosen = marked("scale-in");
    chosen["metadata"]["annotations"]["nodeset.slinky.slurm.net/pod-deletion-cost"] = json!("100");
    chosen["metadata"]["annotations"]["nodeset.slinky.slurm.net/pod-deadline"] =
        json!("2030-01-01T00:00:00Z");
    let mut fixture = Fixture::new(&json!({ "replicas": 1 })).workers(3).worker("gpu-0", &change);
    for name in ["gpu-1", "gpu-2"] {
        fixture = fixture.worker(name, &chosen).slurm(name, &["ALLOCATED", "DRAIN"], "slurm-operator: x");
    }
    let plan = fixture.plan();
    let mut waiting: Vec<_> = plan.waiting.iter().map(|waiting| waiting.pod.as_str()).collect();
    waiting.sort_unstable();
    assert_eq!(waiting, ["gpu-1", "gpu-2"]);
    let marks = fixture.effects().into_iter().filter(|effect| effect.contains("mark"));
    assert_eq!(marks.collect::<Vec<_>>(), [""; 0]);
}
