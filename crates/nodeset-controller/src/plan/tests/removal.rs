//! Who may be deleted: nothing without evidence, and what is not known is not drained.

use crate::plan::fixture::Fixture;
use crate::plan::{DeletionWait, WaitFor};
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
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm("gpu-0", states, "");
    assert!(!fixture.effects().iter().any(|effect| effect.starts_with("delete")), "{:?}", fixture.effects());
}

#[rstest]
#[case::idle(&["IDLE", "DRAIN"])]
#[case::down(&["DOWN", "DRAIN"])]
fn a_drained_node_gives_its_pod_away(#[case] states: &[&str]) {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm("gpu-0", states, "");
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, drained)"]);
}

#[test]
fn without_word_from_slurm_only_who_never_started_goes() {
    let fixture = Fixture::new(&json!({ "replicas": 0 }))
        .worker("gpu-0", &marked())
        .worker("gpu-1", &serde_json::from_str(PENDING).unwrap())
        .unknown();
    assert_eq!(fixture.effects(), ["delete gpu-1 (Surplus, needless)"]);
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::Slurm);
}

#[test]
fn without_word_from_slurm_workers_are_still_made_and_nothing_is_undone() {
    let node = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "node" } } });
    let fixture = Fixture::new(&json!({ "replicas": 2 })).worker("gpu-0", &node).unknown();
    assert_eq!(fixture.effects(), ["create gpu-1"]);
}

#[test]
fn a_node_that_was_written_to_since_proves_nothing() {
    let mut fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm(
        "gpu-0",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    let View::Known(known) = &mut fixture.observed.slurm else { panic!() };
    known.uncertain.insert("gpu-0".to_owned());
    assert!(fixture.effects().is_empty());
}

#[test]
fn where_no_slurm_is_expected_pods_are_just_pods() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).view(View::NotExpected);
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, no slurm)"]);
}

#[test]
fn whoever_was_seen_in_slurm_waits_for_it_to_come_back() {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &registered("Idle")).view(View::NotExpected);
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn who_came_since_slurm_went_silent_may_have_a_job_that_nobody_can_tell_of() {
    let fixture = Fixture::new(&json!({ "replicas": 1 }))
        .worker("gpu-0", &registered("Idle"))
        .worker("gpu-1", &json!({}))
        .view(View::NotExpected);
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(
        (fixture.plan().waiting[0].pod.as_str(), fixture.plan().waiting[0].for_),
        ("gpu-1", WaitFor::Slurm)
    );
}

#[test]
fn a_pod_that_is_late_to_say_that_it_runs_is_drained_like_any_other() {
    let late = json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &late);
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, needless)"]);
    let effects = fixture.slurm("gpu-0", &["MIXED"], "").effects();
    assert!(effects[0].starts_with("mark gpu-0 for scale-in and drain"), "{effects:?}");
    assert_eq!(effects.len(), 1);
}

#[test]
fn a_slurm_that_was_never_heard_before_proves_nobody_gone_who_was_there() {
    let idle = registered("Idle");
    let mut fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &idle).worker("gpu-1", &json!({}));
    assert_eq!(fixture.effects(), ["delete gpu-1 (Surplus, absent)", "mark gpu-0 for scale-in"]);
    let View::Known(known) = &mut fixture.observed.slurm else { panic!() };
    known.is_new = true;
    assert_eq!(fixture.effects(), ["delete gpu-1 (Surplus, absent)"]);
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::Slurm);
}

#[test]
fn whoever_never_registered_goes_on_the_evidence_that_there_is_no_node() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({}));
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, absent)"]);
}

#[test]
fn whoever_had_a_job_when_slurm_forgot_it_is_left_to_people() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &registered("Allocated"));
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::LostJob);
}

#[test]
fn whoever_was_idle_when_slurm_forgot_it_is_marked_before_deleted() {
    let idle = registered("Idle");
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &idle);
    assert_eq!(fixture.effects(), ["mark gpu-0 for scale-in"]);
    let mut both = idle;
    crate::plan::testing::merge(&mut both, &marked());
    assert_eq!(fixture.worker("gpu-0", &both).effects(), ["delete gpu-0 (Surplus, absent)"]);
}

#[test]
fn a_drain_of_a_person_is_as_good_and_keeps_its_reason() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).slurm(
        "gpu-0",
        &["IDLE", "DRAIN"],
        "disk",
    );
    assert_eq!(fixture.effects(), ["mark gpu-0 for scale-in"]);
    let down = fixture.slurm("gpu-0", &["DOWN"], "disk");
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
    let fixture = Fixture::new(&json!({ "replicas": 1 })).workers(1).worker("gpu-0", &ending);
    assert_eq!(fixture.effects(), ["drain gpu-0: slurm-operator: Pod is terminating"]);
    let drained = fixture.slurm("gpu-0", &["IDLE", "DRAIN"], "disk");
    assert!(drained.effects().is_empty(), "{:?}", drained.effects());
}

fn deleting(fixture: Fixture) -> Fixture {
    fixture.nodeset(|nodeset| {
        nodeset.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
    })
}

#[test]
fn a_nodeset_that_is_deleted_drains_its_workers_first() {
    let fixture = deleting(Fixture::new(&json!({ "replicas": 2 })).workers(2));
    let effects = fixture.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert!(effects.iter().all(|effect| effect.contains("for scale-in and drain")), "{effects:?}");
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Workers(2)));
}

#[test]
fn a_nodeset_that_is_deleted_waits_for_job_records_that_name_its_partition() {
    let fixture = deleting(Fixture::new(&json!({ "replicas": 2 })));
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Slurm), "nobody asked for jobs yet");
    let fixture = fixture.jobs("gpu", 3);
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Jobs(3)));
    assert!(fixture.effects().is_empty());
    let fixture = fixture.jobs("gpu", 0);
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Open), "nobody has told yet that it is closed");
    let fixture = fixture.open(&["all", "gpu"]);
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Open));
    assert!(fixture.effects().is_empty());
    assert_eq!(fixture.open(&["all"]).effects(), ["release to []"]);
}

#[rstest]
#[case::of_a_person(json!({ "extraConf": "PartitionName=gpu Nodes=ALL" }), None, DeletionWait::Nothing)]
#[case::of_a_cluster_elsewhere(json!({ "external": true }), None, DeletionWait::Nothing)]
#[case::of_another_node_set(json!({}), Some(("gpu-", None)), DeletionWait::Nothing)]
#[case::of_another_that_goes_too(json!({}), Some(("gpu-", Some("2027-01-15T08:00:00Z"))), DeletionWait::Open)]
#[case::of_no_other_node_set(json!({}), Some(("cpu-", None)), DeletionWait::Open)]
fn an_open_partition_keeps_only_the_nodeset_that_it_goes_with(
    #[case] controller: Value,
    #[case] sibling: Option<(&str, Option<&str>)>,
    #[case] expected: DeletionWait,
) {
    let mut fixture = deleting(Fixture::new(&json!({ "replicas": 2 }))).jobs("gpu", 0).open(&["gpu"]);
    let mut changed = json!(**fixture.observed.controller.as_ref().unwrap());
    crate::plan::testing::merge(&mut changed["spec"], &controller);
    fixture.observed.controller = Some(Arc::new(serde_json::from_value(changed).unwrap()));
    // An old picture of itself is nobody else.
    let mut before = (*fixture.observed.nodeset).clone();
    before.metadata.deletion_timestamp = None;
    fixture.observed.siblings = vec![Arc::new(before)];
    fixture.observed.siblings.extend(sibling.map(|(hostname, deleted)| {
        let mut set = json!(*fixture.observed.nodeset);
        set["metadata"] = json!({ "name": "other", "uid": "other", "deletionTimestamp": deleted });
        set["spec"]["template"] = json!({ "spec": { "hostname": hostname } });
        Arc::new(serde_json::from_value(set).unwrap())
    }));
    assert_eq!(fixture.plan().deletion, Some(expected));
}

#[rstest]
#[case::forced(true, false)]
#[case::without_controller(false, true)]
fn a_nodeset_that_is_deleted_waits_for_nothing(#[case] forced: bool, #[case] orphaned: bool) {
    let mut fixture =
        deleting(Fixture::new(&json!({ "replicas": 2 })).workers(2)).unknown().nodeset(|nodeset| {
            nodeset.metadata.finalizers.get_or_insert_default().push("other/finalizer".to_owned());
            if forced {
                let annotations = nodeset.metadata.annotations.get_or_insert_default();
                annotations.insert("nodeset.slinky.slurm.net/force-delete".to_owned(), "true".to_owned());
            }
        });
    if orphaned {
        fixture.observed.controller = None;
    }
    assert_eq!(fixture.effects(), [r#"release to ["other/finalizer"]"#]);
}

#[rstest]
#[case::allocated(&["ALLOCATED"])]
#[case::mixed(&["MIXED"])]
#[case::cleaning_up(&["IDLE", "COMPLETING"])]
fn a_worker_with_a_job_is_drained_and_waited_for(#[case] states: &[&str]) {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).slurm("gpu-0", states, "");
    let reason = "slurm-operator: Pod (ns/gpu-0) is pending termination for scale-in";
    assert_eq!(fixture.effects(), [format!("mark gpu-0 for scale-in and drain: {reason}")]);
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::Drain);
}
