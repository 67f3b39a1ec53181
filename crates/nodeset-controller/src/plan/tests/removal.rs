//! Who may be deleted: nothing without evidence, and what is not known is not drained.

use crate::plan::scene::Scene;
use crate::plan::{Leaving, WaitFor};
use crate::slurm::View;
use rstest::rstest;
use serde_json::{Value, json};
use std::sync::Arc;

fn marked() -> Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "scale-in" } } })
}

fn registered(state: &str) -> Value {
    json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": crate::plan::testing::minute(0) },
        { "type": format!("SlurmNodeState{state}"), "status": "True" },
    ] } })
}

const PENDING: &str = r#"{ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } }"#;

#[rstest]
#[case::no_drain(&["IDLE"])]
#[case::busy_and_draining(&["MIXED", "DRAIN"])]
#[case::allocated_and_draining(&["ALLOCATED", "DRAIN"])]
#[case::cleaning_up(&["IDLE", "DRAIN", "COMPLETING"])]
#[case::being_undrained(&["IDLE", "DRAIN", "UNDRAIN"])]
#[case::down(&["DOWN"])]
fn a_node_that_is_not_drained_keeps_its_pod(#[case] states: &[&str]) {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm("gpu-0", states, "");
    assert!(!scene.effects().iter().any(|effect| effect.starts_with("delete")), "{:?}", scene.effects());
}

#[rstest]
#[case::idle(&["IDLE", "DRAIN"])]
#[case::down(&["DOWN", "DRAIN"])]
fn a_drained_node_gives_its_pod_away(#[case] states: &[&str]) {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm("gpu-0", states, "");
    assert_eq!(scene.effects(), ["delete gpu-0 (Surplus, drained)"]);
}

#[test]
fn without_word_from_slurm_only_who_never_started_goes() {
    let scene = Scene::new(&json!({ "replicas": 0 }))
        .worker("gpu-0", &marked())
        .worker("gpu-1", &serde_json::from_str(PENDING).unwrap())
        .unknown();
    assert_eq!(scene.effects(), ["delete gpu-1 (Surplus, needless)"]);
    assert_eq!(scene.plan().waiting[0].for_, WaitFor::Slurm);
}

#[test]
fn without_word_from_slurm_workers_are_still_made_and_nothing_is_undone() {
    let node = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "node" } } });
    let scene = Scene::new(&json!({ "replicas": 2 })).worker("gpu-0", &node).unknown();
    assert_eq!(scene.effects(), ["create gpu-1"]);
}

#[test]
fn a_node_that_was_written_to_since_proves_nothing() {
    let mut scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm(
        "gpu-0",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    let View::Known(known) = &mut scene.observed.slurm else { panic!() };
    known.doubtful.insert("gpu-0".to_owned());
    assert!(scene.effects().is_empty());
}

#[test]
fn where_no_slurm_is_expected_pods_are_just_pods() {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).view(View::NotExpected);
    assert_eq!(scene.effects(), ["delete gpu-0 (Surplus, no slurm)"]);
}

#[test]
fn whoever_was_seen_in_slurm_waits_for_it_to_come_back() {
    let scene =
        Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &registered("Idle")).view(View::NotExpected);
    assert!(scene.effects().is_empty(), "{:?}", scene.effects());
}

#[test]
fn who_came_since_slurm_went_silent_may_have_a_job_that_nobody_can_tell_of() {
    let scene = Scene::new(&json!({ "replicas": 1 }))
        .worker("gpu-0", &registered("Idle"))
        .worker("gpu-1", &json!({}))
        .view(View::NotExpected);
    assert!(scene.effects().is_empty(), "{:?}", scene.effects());
    assert_eq!(
        (scene.plan().waiting[0].pod.as_str(), scene.plan().waiting[0].for_),
        ("gpu-1", WaitFor::Slurm)
    );
}

#[test]
fn a_pod_that_is_late_to_say_that_it_runs_is_drained_like_any_other() {
    let late = json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &late);
    assert_eq!(scene.effects(), ["delete gpu-0 (Surplus, needless)"]);
    let effects = scene.slurm("gpu-0", &["MIXED"], "").effects();
    assert!(effects[0].starts_with("mark gpu-0 for scale-in and drain"), "{effects:?}");
    assert_eq!(effects.len(), 1);
}

#[test]
fn a_slurm_that_was_never_heard_before_proves_nobody_gone_who_was_there() {
    let idle = registered("Idle");
    let mut scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &idle).worker("gpu-1", &json!({}));
    assert_eq!(scene.effects(), ["delete gpu-1 (Surplus, absent)", "mark gpu-0 for scale-in"]);
    let View::Known(known) = &mut scene.observed.slurm else { panic!() };
    known.is_new = true;
    assert_eq!(scene.effects(), ["delete gpu-1 (Surplus, absent)"]);
    assert_eq!(scene.plan().waiting[0].for_, WaitFor::Slurm);
}

#[test]
fn whoever_never_registered_goes_on_the_evidence_that_there_is_no_node() {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({}));
    assert_eq!(scene.effects(), ["delete gpu-0 (Surplus, absent)"]);
}

#[test]
fn whoever_had_a_job_when_slurm_forgot_it_is_left_to_people() {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &registered("Allocated"));
    assert!(scene.effects().is_empty(), "{:?}", scene.effects());
    assert_eq!(scene.plan().waiting[0].for_, WaitFor::LostJob);
}

#[test]
fn whoever_was_idle_when_slurm_forgot_it_is_marked_before_deleted() {
    let idle = registered("Idle");
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &idle);
    assert_eq!(scene.effects(), ["mark gpu-0 for scale-in"]);
    let mut both = idle;
    crate::plan::testing::merge(&mut both, &marked());
    assert_eq!(scene.worker("gpu-0", &both).effects(), ["delete gpu-0 (Surplus, absent)"]);
}

#[test]
fn a_drain_of_a_person_is_as_good_and_keeps_its_reason() {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).slurm(
        "gpu-0",
        &["IDLE", "DRAIN"],
        "disk",
    );
    assert_eq!(scene.effects(), ["mark gpu-0 for scale-in"]);
    let down = scene.slurm("gpu-0", &["DOWN"], "disk");
    assert_eq!(down.effects(), ["mark gpu-0 for scale-in and drain: "], "an empty reason keeps theirs");
    let fallen = down.slurm("gpu-0", &["DOWN", "DRAIN"], "disk : Not responding");
    assert_eq!(fallen.effects(), ["mark gpu-0 for scale-in"]);
    // Who ended that drain has no more to say; a drain of ours without a reason of ours would never be undone.
    let lifted = fallen.slurm("gpu-0", &["DOWN"], "disk : Not responding").effects();
    assert!(lifted[0].contains("and drain: slurm-operator: "), "{lifted:?}");
}

#[test]
fn a_pod_that_ends_gets_no_more_jobs() {
    let ending = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
    let scene = Scene::new(&json!({ "replicas": 1 })).workers(1).worker("gpu-0", &ending);
    assert_eq!(scene.effects(), ["drain gpu-0: slurm-operator: Pod is terminating"]);
    let drained = scene.slurm("gpu-0", &["IDLE", "DRAIN"], "disk");
    assert!(drained.effects().is_empty(), "{:?}", drained.effects());
}

fn deleting(scene: Scene) -> Scene {
    scene.nodeset(|nodeset| {
        nodeset.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
    })
}

#[test]
fn a_nodeset_that_is_deleted_drains_its_workers_first() {
    let scene = deleting(Scene::new(&json!({ "replicas": 2 })).workers(2));
    let effects = scene.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert!(effects.iter().all(|effect| effect.contains("for scale-in and drain")), "{effects:?}");
    assert_eq!(scene.plan().leaving, Some(Leaving::Workers(2)));
}

#[test]
fn a_nodeset_that_is_deleted_waits_for_job_records_that_name_its_partition() {
    let scene = deleting(Scene::new(&json!({ "replicas": 2 })));
    assert_eq!(scene.plan().leaving, Some(Leaving::Slurm), "nobody asked for jobs yet");
    let scene = scene.jobs("gpu", 3);
    assert_eq!(scene.plan().leaving, Some(Leaving::Jobs(3)));
    assert!(scene.effects().is_empty());
    let scene = scene.jobs("gpu", 0);
    assert_eq!(scene.plan().leaving, Some(Leaving::Open), "nobody has told yet that it is closed");
    let scene = scene.open(&["all", "gpu"]);
    assert_eq!(scene.plan().leaving, Some(Leaving::Open));
    assert!(scene.effects().is_empty());
    assert_eq!(scene.open(&["all"]).effects(), ["release to []"]);
}

#[rstest]
#[case::of_a_person(json!({ "extraConf": "PartitionName=gpu Nodes=ALL" }), None, Leaving::Nothing)]
#[case::of_a_cluster_elsewhere(json!({ "external": true }), None, Leaving::Nothing)]
#[case::of_another_node_set(json!({}), Some(("gpu-", None)), Leaving::Nothing)]
#[case::of_another_that_goes_too(json!({}), Some(("gpu-", Some("2027-01-15T08:00:00Z"))), Leaving::Open)]
#[case::of_no_other_node_set(json!({}), Some(("cpu-", None)), Leaving::Open)]
fn an_open_partition_keeps_only_the_nodeset_that_it_goes_with(
    #[case] controller: Value,
    #[case] sibling: Option<(&str, Option<&str>)>,
    #[case] expected: Leaving,
) {
    let mut scene = deleting(Scene::new(&json!({ "replicas": 2 }))).jobs("gpu", 0).open(&["gpu"]);
    let mut changed = json!(**scene.observed.controller.as_ref().unwrap());
    crate::plan::testing::merge(&mut changed["spec"], &controller);
    scene.observed.controller = Some(Arc::new(serde_json::from_value(changed).unwrap()));
    // An old picture of itself is nobody else.
    let mut before = (*scene.observed.nodeset).clone();
    before.metadata.deletion_timestamp = None;
    scene.observed.siblings = vec![Arc::new(before)];
    scene.observed.siblings.extend(sibling.map(|(hostname, deleted)| {
        let mut set = json!(*scene.observed.nodeset);
        set["metadata"] = json!({ "name": "other", "uid": "other", "deletionTimestamp": deleted });
        set["spec"]["template"] = json!({ "spec": { "hostname": hostname } });
        Arc::new(serde_json::from_value(set).unwrap())
    }));
    assert_eq!(scene.plan().leaving, Some(expected));
}

#[rstest]
#[case::forced(true, false)]
#[case::without_controller(false, true)]
fn a_nodeset_that_is_deleted_waits_for_nothing(#[case] forced: bool, #[case] orphaned: bool) {
    let mut scene = deleting(Scene::new(&json!({ "replicas": 2 })).workers(2)).unknown().nodeset(|nodeset| {
        nodeset.metadata.finalizers.get_or_insert_default().push("other/finalizer".to_owned());
        if forced {
            let annotations = nodeset.metadata.annotations.get_or_insert_default();
            annotations.insert("nodeset.slinky.slurm.net/force-delete".to_owned(), "true".to_owned());
        }
    });
    if orphaned {
        scene.observed.controller = None;
    }
    assert_eq!(scene.effects(), [r#"release to ["other/finalizer"]"#]);
}

#[rstest]
#[case::allocated(&["ALLOCATED"])]
#[case::mixed(&["MIXED"])]
#[case::cleaning_up(&["IDLE", "COMPLETING"])]
fn a_worker_with_a_job_is_drained_and_waited_for(#[case] states: &[&str]) {
    let scene = Scene::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).slurm("gpu-0", states, "");
    let reason = "slurm-operator: Pod (ns/gpu-0) is pending termination for scale-in";
    assert_eq!(scene.effects(), [format!("mark gpu-0 for scale-in and drain: {reason}")]);
    assert_eq!(scene.plan().waiting[0].for_, WaitFor::Drain);
}
