//! Numbers: how many workers there are, which ones come and which ones go.

use crate::plan::fixture::Fixture;
use crate::plan::update::Allowance;
use crate::plan::{Obstacle, WaitFor};
use rstest::rstest;
use serde_json::json;
use slurm_rest::Deadline;

const DRAINING: &str = " and drain: slurm-operator: Pod (ns/gpu-";

#[test]
fn missing_workers_are_made_with_the_lowest_free_numbers() {
    let fixture = Fixture::new(&json!({ "replicas": 4 })).worker("gpu-1", &json!({}));
    assert_eq!(fixture.effects(), ["create gpu-0", "create gpu-2", "create gpu-3"]);
}

#[test]
fn nobody_is_made_without_a_controller_and_nobody_goes() {
    let mut fixture = Fixture::new(&json!({ "replicas": 2 })).workers(4);
    fixture.observed.controller = None;
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(matches!(plan.obstacles.as_slice(), [Obstacle::Missing(_)]), "{:?}", plan.obstacles);
}

#[test]
fn nobody_is_made_before_the_nodeset_is_held() {
    let fixture =
        Fixture::new(&json!({ "replicas": 2 })).nodeset(|nodeset| nodeset.metadata.finalizers = None);
    assert!(fixture.effects().is_empty());
    assert_eq!(fixture.plan().add_finalizers.unwrap(), ["nodeset.slinky.slurm.net/workers"]);
}

#[test]
fn one_plan_makes_no_more_than_a_burst() {
    assert_eq!(Fixture::new(&json!({ "replicas": 1000 })).effects().len(), 250);
}

#[test]
fn an_absurd_number_is_refused_and_changes_nothing() {
    let fixture = Fixture::new(&json!({ "replicas": 2_000_000_000 })).workers(2);
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(matches!(plan.obstacles.as_slice(), [Obstacle::Replicas(_)]));
}

#[test]
fn workers_that_are_right_are_left_alone() {
    let plan = Fixture::new(&json!({ "replicas": 2 })).workers(2).plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
}

#[test]
fn surplus_workers_are_marked_and_drained_first_the_highest_numbers() {
    let effects = Fixture::new(&json!({ "replicas": 1 })).workers(3).effects();
    let expected = ["mark gpu-2 for scale-in", "mark gpu-1 for scale-in"];
    for (effect, expected) in effects.iter().zip(expected) {
        assert!(effect.starts_with(&format!("{expected}{DRAINING}")), "{effect}");
        assert!(effect.ends_with("is pending termination for scale-in"), "{effect}");
    }
    assert_eq!(effects.len(), 2);
}

/// Three busy workers, of which only the last two say so: their pods were written to first.
fn half_told() -> Fixture {
    let told = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-deadline": "9999-01-01T00:00:00Z" } } });
    ["gpu-0", "gpu-1", "gpu-2"].iter().fold(Fixture::new(&json!({ "replicas": 1 })), |fixture, name| {
        let pod = if *name == "gpu-0" { &json!({}) } else { &told };
        fixture.worker(name, pod).slurm(name, &["ALLOCATED"], "")
    })
}

#[rstest]
#[case::all_until_then(
    ["gpu-0", "gpu-1", "gpu-2"].iter().fold(half_told(), |fixture, name| fixture.job_until(name, Deadline::Never)),
    &["gpu-2", "gpu-1"],
)]
#[case::nobody_asked_until_when(half_told().slurm("gpu-1", &["IDLE"], ""), &["gpu-1", "gpu-0"])]
fn a_job_counts_when_slurm_tells_of_it_and_not_only_when_the_pod_does(
    #[case] fixture: Fixture,
    #[case] leaving: &[&str],
) {
    let effects = fixture.effects();
    let marked: Vec<_> = effects.iter().filter_map(|effect| effect.split_whitespace().nth(1)).collect();
    assert_eq!(marked, leaving, "{effects:?}");
}

fn marked(cause: &str) -> serde_json::Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": cause } } })
}

#[test]
fn whoever_was_chosen_stays_chosen_when_a_job_lands_late() {
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
fn whoever_is_drained_is_deleted_on_evidence() {
    let fixture = Fixture::new(&json!({ "replicas": 2 }))
        .workers(3)
        .worker("gpu-2", &marked("scale-in"))
        .slurm("gpu-2", &["IDLE", "DRAIN"], "slurm-operator: x");
    assert_eq!(fixture.effects(), ["delete gpu-2 (Surplus, drained)"]);
}

#[test]
fn whoever_is_wanted_again_is_unmarked_before_undrained() {
    let fixture = Fixture::new(&json!({ "replicas": 3 }))
        .workers(3)
        .worker("gpu-2", &marked("scale-in"))
        .slurm("gpu-2", &["IDLE", "DRAIN"], "slurm-operator: x");
    assert_eq!(fixture.effects(), [r#"unmark gpu-2 Undrain("gpu-2")"#]);
}

#[rstest]
#[case::terminating(json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }))]
#[case::failed_and_waiting(json!({ "status": { "phase": "Failed" } }))]
fn nobody_is_made_while_somebody_is_still_there(#[case] change: serde_json::Value) {
    let mut fixture = Fixture::new(&json!({ "replicas": 2 })).workers(2).worker("gpu-1", &change);
    fixture.observed.retry_times.insert("gpu-1".to_owned(), crate::plan::testing::minute(61));
    let effects = fixture.effects();
    assert!(!effects.iter().any(|effect| effect.starts_with("create")), "{effects:?}");
}

#[test]
fn a_long_termination_costs_nobody_else_their_place() {
    let gone = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
    let fixture = Fixture::new(&json!({ "replicas": 2 })).workers(3).worker("gpu-2", &gone).slurm(
        "gpu-2",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[rstest]
#[case::failed("Failed", "delete gpu-1 (Failed, needless)")]
#[case::succeeded("Succeeded", "delete gpu-1 (Succeeded, needless)")]
fn whoever_ended_makes_room(#[case] phase: &str, #[case] expected: &str) {
    let fixture = Fixture::new(&json!({ "replicas": 2 }))
        .workers(2)
        .worker("gpu-1", &json!({ "status": { "phase": phase, "conditions": [] } }));
    assert_eq!(fixture.effects(), [expected]);
}

#[test]
fn whoever_fails_again_and_again_is_replaced_later_and_later() {
    let mut fixture =
        Fixture::new(&json!({ "replicas": 1 })).worker("gpu-0", &json!({ "status": { "phase": "Failed" } }));
    fixture.observed.retry_times.insert("gpu-0".to_owned(), crate::plan::testing::minute(61));
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert_eq!(plan.requeue_after, Some(std::time::Duration::from_secs(61)));
}

/// The last moment that there is: no time can be counted from it on.
#[rstest]
#[case::registered(true)]
#[case::unknown_to_slurm(false)]
fn a_worker_that_says_to_be_ready_since_the_end_of_time_is_waited_for(#[case] registered: bool) {
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::MAX });
    let mut fixture = Fixture::new(&json!({ "replicas": 1, "minReadySeconds": i32::MAX }))
        .worker("gpu-0", &json!({ "status": { "conditions": [ready] } }));
    if registered {
        fixture = fixture.slurm("gpu-0", &["IDLE"], "");
    }
    assert!(fixture.plan().requeue_after.is_some());
}

#[test]
fn a_percentage_beyond_all_numbers_is_everybody() {
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": format!("{}%", usize::MAX) } });
    let fixture = Fixture::new(&json!({ "replicas": 3, "updateStrategy": strategy }));
    assert_eq!(Allowance::of(&fixture.observed.nodeset, 3).floor(), 0);
}

#[test]
fn workers_of_the_other_mode_leave_and_no_more_come_than_wanted() {
    let daemon = json!({ "metadata": { "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet" } },
        "spec": { "hostname": "node-a" } });
    let fixture =
        Fixture::new(&json!({ "replicas": 1 })).worker("gpu-nx", &daemon).slurm("node-a", &["IDLE"], "");
    let effects = fixture.effects();
    assert_eq!(effects.len(), 1, "{effects:?}");
    assert!(effects[0].starts_with("mark gpu-nx for scale-in"), "{effects:?}");
}

#[test]
fn a_nodeset_without_template_errors_says_so_and_keeps_its_workers() {
    let fixture = Fixture::new(&json!({ "replicas": 3, "extraConf": "Weight10" })).workers(2);
    let plan = fixture.plan();
    assert!(plan.effects.is_empty(), "{:?}", plan.effects);
    assert!(matches!(plan.obstacles.as_slice(), [Obstacle::Build(_)]), "{:?}", plan.obstacles);
}

#[test]
fn an_orphan_of_our_name_and_labels_is_adopted_and_a_stray_of_ours_is_disowned() {
    let orphan = json!({ "metadata": { "ownerReferences": null } });
    let stray = json!({ "metadata": { "labels": { "app.kubernetes.io/name": "other" } } });
    let fixture =
        Fixture::new(&json!({ "replicas": 3 })).workers(3).worker("gpu-1", &orphan).worker("gpu-2", &stray);
    let effects = fixture.effects();
    assert_eq!(effects, ["adopt gpu-1", "disown gpu-2", "create gpu-2"]);
}

#[rstest]
#[case::of_a_sibling("gpu-big-0", json!({ "metadata": { "ownerReferences": null } }))]
#[case::of_a_predecessor("gpu-0", json!({ "metadata": { "ownerReferences": [
    { "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "gpu", "uid": "older", "controller": true }] } }))]
fn pods_of_others_are_nobody_here(#[case] name: &str, #[case] change: serde_json::Value) {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker(name, &change);
    let plan = fixture.plan();
    assert!(plan.effects.is_empty() && plan.workers.is_empty(), "{:?}", plan.effects);
}

#[test]
fn nobody_wanted_and_nobody_there_is_nothing_to_do() {
    let plan = Fixture::new(&json!({ "replicas": 0 })).plan();
    assert!(plan.effects.is_empty() && plan.waiting.is_empty() && plan.obstacles.is_empty());
    assert_eq!((plan.desired, plan.requeue_after), (0, None));
}

#[rstest]
#[case::failed("Failed")]
#[case::succeeded("Succeeded")]
fn whoever_ended_and_is_on_its_way_out_is_not_deleted_again(#[case] phase: &str) {
    let ended = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" },
        "status": { "phase": phase, "conditions": [] } });
    let fixture = Fixture::new(&json!({ "replicas": 2 })).workers(2).worker("gpu-1", &ended);
    assert_eq!(fixture.effects(), ["drain gpu-1: slurm-operator: Pod is terminating"]);
}

#[test]
fn the_soonest_reason_to_look_again_counts() {
    let failed = json!({ "status": { "phase": "Failed" } });
    let mut fixture =
        Fixture::new(&json!({ "replicas": 3 })).workers(3).worker("gpu-0", &failed).worker("gpu-1", &failed);
    fixture.observed.retry_times.insert("gpu-0".to_owned(), crate::plan::testing::minute(900));
    fixture.observed.retry_times.insert("gpu-1".to_owned(), crate::plan::testing::minute(61));
    assert_eq!(fixture.plan().requeue_after, Some(std::time::Duration::from_secs(61)));
}

/// Whoever leaves looks dearer than whoever stays, and is gone all the same.
#[rstest]
#[case::cheaper(json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/pod-deletion-cost": "-10" } } }))]
#[case::not_ready(json!({ "status": { "conditions": [] } }))]
#[case::not_bound(json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [] } }))]
#[case::cordoned_by_a_person(json!({ "metadata": { "annotations": { "nodeset.slinky.slurm.net/pod-cordon": "true" } } }))]
fn a_choice_outlives_whatever_makes_another_one_better(#[case] change: serde_json::Value) {
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
