//! Removal of workers: no delete without evidence, and unknown nodes do not count as drained.

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

const PENDING: &str = r#"{ "spec": { "nodeName": "" }, "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } }"#;

#[rstest]
#[case::no_drain(&["IDLE"])]
#[case::busy_and_draining(&["MIXED", "DRAIN"])]
#[case::allocated_and_draining(&["ALLOCATED", "DRAIN"])]
#[case::completing(&["IDLE", "DRAIN", "COMPLETING"])]
#[case::being_undrained(&["IDLE", "DRAIN", "UNDRAIN"])]
#[case::down(&["DOWN"])]
fn undrained_node_keeps_its_pod(#[case] states: &[&str]) {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm("gpu-0", states, "");
    assert!(!fixture.effects().iter().any(|effect| effect.starts_with("delete")), "{:?}", fixture.effects());
}

#[rstest]
#[case::idle(&["IDLE", "DRAIN"])]
#[case::down(&["DOWN", "DRAIN"])]
fn pod_of_drained_node_is_deleted(#[case] states: &[&str]) {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked()).slurm("gpu-0", states, "");
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, drained)"]);
}

#[test]
fn unreachable_slurm_allows_deletion_of_unbound_pods_only() {
    let fixture = Fixture::new(&json!({ "replicas": 0 }))
        .worker("gpu-0", &marked())
        .worker("gpu-1", &serde_json::from_str(PENDING).unwrap())
        .worker(
            "gpu-2",
            &json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } }),
        )
        .unknown();
    assert_eq!(fixture.effects(), ["delete gpu-1 (Surplus, no evidence needed)"]);
    let waiting = fixture.plan().waiting;
    let waiting: Vec<_> = waiting.iter().map(|waiting| (waiting.pod.as_str(), waiting.for_)).collect();
    assert_eq!(waiting, [("gpu-2", WaitFor::Slurm), ("gpu-0", WaitFor::Slurm)]);
}

#[test]
fn unreachable_slurm_allows_creation_but_no_uncordon() {
    let node = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "node" } } });
    let fixture = Fixture::new(&json!({ "replicas": 2 })).worker("gpu-0", &node).unknown();
    assert_eq!(fixture.effects(), ["create gpu-1"]);
}

#[test]
fn node_written_to_since_the_snapshot_is_no_evidence() {
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
fn pods_are_deleted_without_drain_when_no_slurm_is_expected() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).view(View::NoRestApi);
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, no slurm)"]);
}

#[test]
fn registered_worker_waits_for_missing_restapi() {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &registered("Idle")).view(View::NoRestApi);
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn worker_created_since_the_restapi_vanished_may_have_a_job() {
    let fixture = Fixture::new(&json!({ "replicas": 1 }))
        .worker("gpu-0", &registered("Idle"))
        .worker("gpu-1", &json!({}))
        .view(View::NoRestApi);
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(
        (fixture.plan().waiting[0].pod.as_str(), fixture.plan().waiting[0].for_),
        ("gpu-1", WaitFor::Slurm)
    );
}

#[test]
fn pending_pod_with_registered_slurm_node_is_drained() {
    let pending = json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &pending);
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, absent)"]);
    let effects = fixture.slurm("gpu-0", &["MIXED"], "").effects();
    assert!(effects[0].starts_with("mark gpu-0 for scale-in and drain"), "{effects:?}");
    assert_eq!(effects.len(), 1);
}

#[test]
fn new_slurm_connection_does_not_prove_a_registered_node_absent() {
    let idle = registered("Idle");
    let mut fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &idle).worker("gpu-1", &json!({}));
    assert_eq!(fixture.effects(), ["delete gpu-1 (Surplus, absent)", "mark gpu-0 for scale-in"]);
    let View::Known(known) = &mut fixture.observed.slurm else { panic!() };
    known.is_new = true;
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    let waits_for_slurm = |waiting: &crate::plan::Waiting| waiting.for_ == WaitFor::Slurm;
    assert!(fixture.plan().waiting.iter().all(waits_for_slurm), "{:?}", fixture.plan().waiting);
}

#[test]
fn node_that_is_missing_from_the_list_may_be_run_by_a_worker_without_node() {
    let mut fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({}));
    let View::Known(known) = &mut fixture.observed.slurm else { panic!() };
    known.uncertain.insert("other".to_owned());
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::Slurm);
}

#[test]
fn unregistered_worker_is_deleted_with_evidence_of_absence() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({}));
    assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, absent)"]);
}

#[test]
fn worker_with_job_and_lost_node_record_is_not_deleted() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &registered("Allocated"));
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::LostJob);
}

#[test]
fn idle_worker_with_lost_node_record_is_marked_before_deletion() {
    let idle = registered("Idle");
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &idle);
    assert_eq!(fixture.effects(), ["mark gpu-0 for scale-in"]);
    let mut both = idle;
    crate::plan::testing::merge(&mut both, &marked());
    assert_eq!(fixture.worker("gpu-0", &both).effects(), ["delete gpu-0 (Surplus, absent)"]);
}

#[test]
fn foreign_drain_is_accepted_and_keeps_its_reason() {
    let fixture = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).slurm(
        "gpu-0",
        &["IDLE", "DRAIN"],
        "disk",
    );
    assert_eq!(fixture.effects(), ["mark gpu-0 for scale-in"]);
    let down = fixture.slurm("gpu-0", &["DOWN"], "disk");
    assert_eq!(
        down.effects(),
        ["mark gpu-0 for scale-in and drain: "],
        "an empty reason keeps the foreign one"
    );
    let not_responding = down.slurm("gpu-0", &["DOWN", "DRAIN"], "disk : Not responding");
    assert_eq!(not_responding.effects(), ["mark gpu-0 for scale-in"]);
    // Once the foreign drain is lifted, its reason no longer counts. A drain without a reason of ours would never be
    // undone.
    let lifted = not_responding.slurm("gpu-0", &["DOWN"], "disk : Not responding").effects();
    assert!(lifted[0].contains("and drain: slurm-operator: "), "{lifted:?}");
}

#[test]
fn node_of_terminating_pod_is_drained() {
    let terminating = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
    let fixture = Fixture::new(&json!({ "replicas": 1 })).workers(1).worker("gpu-0", &terminating);
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
fn deleted_nodeset_drains_its_workers_first() {
    let fixture = deleting(Fixture::new(&json!({ "replicas": 2 })).workers(2));
    let effects = fixture.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert!(effects.iter().all(|effect| effect.contains("for scale-in and drain")), "{effects:?}");
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Workers(2)));
}

#[test]
fn deleted_nodeset_waits_for_job_records_of_its_partition() {
    let fixture = deleting(Fixture::new(&json!({ "replicas": 2 })));
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Slurm), "jobs are not listed yet");
    let fixture = fixture.jobs("gpu", 3);
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Jobs(3)));
    assert!(fixture.effects().is_empty());
    let fixture = fixture.jobs("gpu", 0);
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Open), "partitions are not listed yet");
    let fixture = fixture.open(&["all", "gpu"]);
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Open));
    assert!(fixture.effects().is_empty());
    assert_eq!(fixture.open(&["all"]).effects(), ["set finalizers []"]);
}

#[rstest]
#[case::defined_by_a_person(json!({ "extraConf": "PartitionName=gpu Nodes=ALL" }), None, false)]
#[case::external_cluster(json!({ "external": true }), None, false)]
#[case::shared_with_another_nodeset(json!({}), Some(("gpu-", None)), false)]
#[case::shared_with_another_deleted_nodeset(json!({}), Some(("gpu-", Some("2027-01-15T08:00:00Z"))), true)]
#[case::not_shared(json!({}), Some(("cpu-", None)), true)]
fn partition_blocks_only_the_nodeset_that_defines_it(
    #[case] controller: Value,
    #[case] sibling: Option<(&str, Option<&str>)>,
    #[case] blocks: bool,
    #[values((0, DeletionWait::Open), (3, DeletionWait::Jobs(3)))] (records, wait): (usize, DeletionWait),
) {
    let mut fixture = deleting(Fixture::new(&json!({ "replicas": 2 }))).jobs("gpu", records).open(&["gpu"]);
    let mut changed = json!(**fixture.observed.controller.as_ref().unwrap());
    crate::plan::testing::merge(&mut changed["spec"], &controller);
    fixture.observed.controller = Some(Arc::new(serde_json::from_value(changed).unwrap()));
    // A stale copy of the NodeSet itself is not another NodeSet.
    let mut before = (*fixture.observed.nodeset).clone();
    before.metadata.deletion_timestamp = None;
    fixture.observed.siblings = vec![Arc::new(before)];
    fixture.observed.siblings.extend(sibling.map(|(hostname, deleted)| {
        let mut set = json!(*fixture.observed.nodeset);
        set["metadata"] = json!({ "name": "other", "uid": "other", "deletionTimestamp": deleted });
        set["spec"]["template"] = json!({ "spec": { "hostname": hostname } });
        Arc::new(serde_json::from_value(set).unwrap())
    }));
    let expected = if blocks { wait } else { DeletionWait::Nothing };
    assert_eq!(fixture.plan().deletion, Some(expected), "jobs of a partition that stays come and go");
}

/// A NodeSet with two workers and the finalizer of another program, in deletion while Slurm is unreachable.
fn deleting_without_slurm(change: impl FnOnce(&mut slinky_api::v1beta1::NodeSet)) -> Fixture {
    deleting(Fixture::new(&json!({ "replicas": 2 })).workers(2)).unknown().nodeset(|nodeset| {
        nodeset.metadata.finalizers.get_or_insert_default().push("other/finalizer".to_owned());
        change(nodeset);
    })
}

#[test]
fn nodeset_without_controller_is_deleted_without_waiting() {
    let mut fixture = deleting_without_slurm(|_| ());
    fixture.observed.controller = None;
    assert_eq!(fixture.effects(), [r#"set finalizers ["other/finalizer"]"#]);
}

#[test]
fn forced_deletion_deletes_the_workers_first() {
    let fixture = deleting_without_slurm(|nodeset| {
        let annotations = nodeset.metadata.annotations.get_or_insert_default();
        annotations.insert("nodeset.slinky.slurm.net/force-delete".to_owned(), "true".to_owned());
    });
    let deletes = ["gpu-1", "gpu-0"].map(|pod| format!("delete {pod} (Unwanted, no evidence needed)"));
    assert_eq!(fixture.effects(), deletes);
    let terminating = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
    let fixture = fixture.worker("gpu-0", &terminating).worker("gpu-1", &terminating);
    assert_eq!(fixture.effects(), [r#"set finalizers ["other/finalizer"]"#]);
}

#[test]
fn suspended_job_keeps_the_pod_of_a_drained_node() {
    let marked = Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &marked());
    let fixture = marked.slurm("gpu-0", &["IDLE", "DRAIN"], "slurm-operator: x").hidden_job("gpu-0", "7");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::Drain);
}

/// A worker that runs for an hour, at this address, and whose slurmd registered under another name.
fn renamed(address: &str, started_at: i64, comment: &str) -> Fixture {
    let worker = json!({ "status": { "podIP": "10.0.0.7" } });
    Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &worker).slurm_node(json!({
        "name": "other", "state": ["MIXED"], "address": address, "comment": comment,
        "slurmd_start_time": { "set": true, "number": crate::plan::testing::minute(started_at).as_second() },
    }))
}

const POD_OF_ANOTHER_NODESET: &str = r#"{"namespace":"ns","podName":"cpu-0","node":"n"}"#;

#[rstest]
#[case::at_its_address("10.0.0.7", -100, "", true)]
#[case::started_since_the_pod_was_created("10.0.0.8", 0, "", true)]
#[case::started_within_the_skew_of_clocks("10.0.0.8", -4, "", true)]
#[case::older_than_the_pod("10.0.0.8", -6, "", false)]
#[case::run_by_another_pod("10.0.0.7", 0, POD_OF_ANOTHER_NODESET, false)]
fn worker_that_may_be_registered_under_another_name_is_not_removed(
    #[case] address: &str,
    #[case] started_at: i64,
    #[case] comment: &str,
    #[case] waits: bool,
) {
    let fixture = renamed(address, started_at, comment);
    if waits {
        assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
        assert_eq!(fixture.plan().waiting[0].for_, WaitFor::OtherName);
    } else {
        assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, absent)"]);
    }
}

/// The drained record of the worker's name is that of the pod before, or its own.
#[rstest]
#[case::of_the_pod_before("10.0.0.6", true)]
#[case::its_own("10.0.0.7", false)]
#[case::by_hostname("gpu-0.slurm-workers-slurm.ns", false)]
fn record_of_the_pod_before_does_not_hide_the_name_of_a_worker(#[case] address: &str, #[case] waits: bool) {
    let record = json!({ "name": "gpu-0", "state": ["IDLE", "DRAIN"], "reason": "slurm-operator: x",
        "address": address });
    let mut worker = marked();
    worker["status"]["podIP"] = json!("10.0.0.7");
    let fixture = renamed("10.0.0.7", 0, "").worker("gpu-0", &worker).slurm_node(record);
    if waits {
        assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
        assert_eq!(fixture.plan().waiting[0].for_, WaitFor::OtherName);
    } else {
        assert_eq!(fixture.effects(), ["delete gpu-0 (Surplus, drained)"]);
    }
}

#[rstest]
#[case::allocated(&["ALLOCATED"])]
#[case::mixed(&["MIXED"])]
#[case::completing(&["IDLE", "COMPLETING"])]
fn worker_with_running_job_is_drained_not_deleted(#[case] states: &[&str]) {
    let fixture =
        Fixture::new(&json!({ "replicas": 0 })).worker("gpu-0", &json!({})).slurm("gpu-0", states, "");
    let reason = "slurm-operator: Pod (ns/gpu-0) is pending termination for scale-in";
    assert_eq!(fixture.effects(), [format!("mark gpu-0 for scale-in and drain: {reason}")]);
    assert_eq!(fixture.plan().waiting[0].for_, WaitFor::Drain);
}
