//! Reasons and messages of conditions.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use slinky_api::v1beta1::NodeSet;

/// Change of a NodeSet: deletion has been requested.
fn being_deleted(nodeset: &mut NodeSet) {
    nodeset.metadata.deletion_timestamp = Some(Time(minute(0)));
}

fn on_delete() -> Fixture {
    Fixture::new(&json!({ "replicas": 5, "updateStrategy": { "type": "OnDelete" } }))
}

fn scheduled() -> Fixture {
    let schedule = json!({ "startTime": minute(120), "duration": "30m" });
    let strategy = json!({ "type": "ScheduledUpdate", "scheduledUpdate": schedule });
    Fixture::new(&json!({ "replicas": 2, "updateStrategy": strategy })).workers(2)
}

/// With a reservation of the desired shape that starts at this minute.
fn with_reservation(mut fixture: Fixture, start: i64) -> Fixture {
    let time = |minutes| json!({ "set": true, "number": minute(minutes).as_second() });
    let reservation = json!({ "name": "SlurmOperatorMaint-gpu", "node_list": "gpu-[0-1]", "users": "slurm",
        "flags": ["MAINT", "IGNORE_JOBS", "SPEC_NODES"], "start_time": time(start), "end_time": time(start + 30) });
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is unreachable") };
    let reservations = Arc::make_mut(&mut known.snapshot).reservations.get_or_insert_default();
    reservations.insert("SlurmOperatorMaint-gpu".to_owned(), serde_json::from_value(reservation).unwrap());
    fixture.nodeset(|nodeset| {
        nodeset
            .metadata
            .finalizers
            .get_or_insert_default()
            .push("nodeset.slinky.slurm.net/reservation".to_owned());
    })
}

/// Slurm answers and has no reservations; the finalizer stays.
fn without_reservation(fixture: Fixture) -> Fixture {
    let mut fixture = with_reservation(fixture, 0);
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is unreachable") };
    Arc::make_mut(&mut known.snapshot).reservations = Some(BTreeMap::default());
    fixture
}

const RESERVATION_MESSAGE: &str =
    "SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min [IGNORE_JOBS, MAINT]";

#[rstest]
#[case::creating(replicas(3).workers(1), "Creating", "creating 2 workers")]
#[case::starting(replicas(2).workers(2).worker("gpu-1", &unready()), "Starting", "1 worker is not available yet (gpu-1)")]
#[case::registering(replicas(2).workers(2).without_slurm_node("gpu-0").without_slurm_node("gpu-1"), "Registering",
    "2 workers are not registered in Slurm (gpu-0, gpu-1)")]
#[case::draining_five(replicas(1).workers(6).slurm("gpu-3", &["MIXED"], ""), "Draining",
    "5 workers are draining until no job is left (gpu-0, gpu-1, gpu-2 and 2 more)")]
#[case::draining_for_an_update(replicas(4).workers(4).worker("gpu-3", &outdated()), "Draining",
    "1 worker is draining until no job is left (gpu-3); updating: 3 of 4 workers are up to date")]
#[case::on_delete_with_a_missing_worker(on_delete().workers(4).worker("gpu-1", &outdated()), "Creating",
    "creating 1 worker; 1 worker is outdated until the pod is deleted (gpu-1)")]
#[case::scheduled_update_in_its_reservation(
    scheduled().worker("gpu-0", &outdated()).worker("gpu-1", &marked_for_update()).slurm_node(
    json!({ "name": "gpu-1", "state": ["ALLOCATED", "DRAIN", "MAINTENANCE"], "reason": "slurm-operator: update",
        "reservation": "SlurmOperatorMaint-gpu" })), "Draining",
    "1 worker is draining until no job is left (gpu-1); updating: 0 of 2 workers are up to date; 1 worker is outdated \
     until a reservation for updates begins (gpu-0)")]
#[case::registering_while_slurm_is_unreachable(replicas(1).workers(1).unknown(), "Registering",
    "1 worker is not known to be registered in Slurm (gpu-0)")]
#[case::terminating(replicas(1).workers(1).worker("gpu-1", &json!({ "metadata": { "deletionTimestamp": minute(50) } })),
    "Ending", "1 worker is terminating (gpu-1)")]
#[case::removal_while_slurm_is_unreachable(replicas(0).worker("gpu-0", &registered("Idle")).unknown(), "AwaitingSlurm",
    "1 worker is to be removed, waiting for an answer from Slurm since 2023-03-28T11:40:00Z: slurmrestd cannot be reached (gpu-0)")]
#[case::removal_after_the_restapi_was_deleted(
    replicas(0).worker("gpu-0", &registered("Idle")).view(View::NoRestApi), "AwaitingSlurm",
    "1 worker is to be removed, waiting for an answer from Slurm, which has no RestApi any more (gpu-0)")]
#[case::deletion_waits_for_workers(replicas(2).workers(1).slurm("gpu-0", &["IDLE"], "").nodeset(being_deleted), "Deleting",
    "the deletion waits for 1 worker to be removed; annotation nodeset.slinky.slurm.net/force-delete=true ends it without \
     waiting; 1 worker is draining until no job is left (gpu-0)")]
#[case::deletion_waits_for_job_records(replicas(2).jobs("gpu", 3).nodeset(being_deleted), "Deleting",
    "the deletion waits for 3 job records that still name its partition; annotation \
     nodeset.slinky.slurm.net/force-delete=true ends it without waiting")]
#[case::deletion_waits_for_slurm(replicas(2).unknown().nodeset(being_deleted), "Deleting",
    "the deletion waits for Slurm to list the job records that name its partition; annotation \
     nodeset.slinky.slurm.net/force-delete=true ends it without waiting")]
#[case::deletion_waits_for_the_partition_to_close(replicas(2).jobs("gpu", 0).open(&["gpu"]).nodeset(being_deleted), "Deleting",
    "the deletion waits for its partition to take no new jobs; annotation \
     nodeset.slinky.slurm.net/force-delete=true ends it without waiting")]
#[case::deletion_waits_for_nothing(replicas(2).jobs("other", 1).open(&["other"]).nodeset(being_deleted), "Deleting",
    "the finalizers are being removed")]
fn progressing_names_running_operations(
    #[case] fixture: Fixture,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let status = status_of(&fixture);
    assert_eq!(condition(&status, PROGRESSING), ("True", reason, message));
}

/// An update that waits for an administrator or for its reservation leaves the workers usable.
#[rstest]
#[case::on_delete(on_delete().workers(5).worker("gpu-1", &outdated()), "Outdated",
    "1 worker is outdated until the pod is deleted (gpu-1)")]
#[case::scheduled_update_without_reservation(without_reservation(scheduled().worker("gpu-1", &outdated())), "UpdateScheduled",
    "1 worker is outdated until a reservation for updates begins (gpu-1)")]
#[case::scheduled_update_with_reservation(with_reservation(scheduled().worker("gpu-1", &outdated()), 120), "UpdateScheduled",
    "1 worker is outdated until reservation SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min \
     [IGNORE_JOBS, MAINT] (gpu-1)")]
fn nodeset_with_a_postponed_update_is_ready_and_not_progressing(
    #[case] fixture: Fixture,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let status = status_of(&fixture);
    assert_eq!(condition(&status, PROGRESSING), ("False", reason, message));
    let (is_ready, reason, message) = condition(&status, READY);
    assert_eq!((is_ready, reason), ("True", AS_EXPECTED));
    assert!(message.ends_with("workers available, registered in Slurm"), "{message}");
    assert_eq!(condition(&status, DEGRADED).0, "False");
}

#[test]
fn worker_marked_by_a_scheduled_update_does_not_count_as_ready() {
    let status = status_of(&scheduled().worker("gpu-1", &marked_for_update()));
    assert_eq!(condition(&status, READY).0, "False");
}

/// Change of a pod: outdated and marked for the update.
fn marked_for_update() -> Value {
    let mark = json!({ "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "update" });
    json!({ "metadata": { "labels": outdated()["metadata"]["labels"], "annotations": mark } })
}

#[test]
fn workers_that_wait_for_others_or_for_a_backoff_are_named() {
    let mut fixture = Fixture::new(
        &json!({ "replicas": 3, "updateStrategy": { "rollingUpdate": { "maxUnavailable": 1 } } }),
    )
    .workers(3)
    .worker("gpu-0", &json!({ "status": { "phase": "Failed", "conditions": [] } }))
    .worker("gpu-1", &marked_for_update())
    .slurm("gpu-1", &["IDLE", "DRAIN"], "slurm-operator: update");
    fixture.observed.retry_times.insert("0".to_owned(), minute(61));
    fixture.observed.retry_times.insert("gpu-0".to_owned(), minute(61));
    let status = status_of(&fixture);
    let (_, _, message) = condition(&status, PROGRESSING);
    assert!(
        message.contains("1 worker is to be replaced when enough others are available (gpu-1)"),
        "{message}"
    );
    assert!(
        message.contains("1 worker is finished, and will be re-created after a backoff (gpu-0)"),
        "{message}"
    );
}

#[test]
fn waiting_writes_are_reported_while_the_plan_has_effects() {
    let effects = Execution { errors: vec![], waiting: Some("an earlier batch is open".to_owned()) };
    let status = status_at(&replicas(2).workers(1), &effects, 60);
    assert_eq!(
        condition(&status, PROGRESSING),
        ("True", "Creating", "creating 1 worker; writes wait: an earlier batch is open")
    );
    let without_effects = Fixture::new(&json!({ "replicas": 0 }));
    assert_eq!(condition(&status_at(&without_effects, &effects, 60), PROGRESSING).0, "False");
}

#[test]
fn failures_are_reported_once_each_while_the_plan_has_writes() {
    let failures = ["gpu-1: refused", "gpu-1: refused", "gpu-2: refused", "gpu-3: refused", "gpu-4: late"];
    let errors = failures.into_iter().map(|text| ("Rejected", text.to_owned())).collect();
    let effects = Execution { errors, waiting: None };
    let expected = ("True", "Rejected", "gpu-1: refused, gpu-2: refused, gpu-3: refused and 1 more");
    let status = status_at(&replicas(2).workers(1), &effects, 60);
    assert_eq!(condition(&status, DEGRADED), expected);
    assert_eq!(condition(&status, READY), ("False", expected.1, expected.2));
    assert_eq!(condition(&status_at(&replicas(0), &effects, 60), DEGRADED).0, "False");
}

#[test]
fn surplus_worker_whose_node_record_was_lost_with_a_job_degrades() {
    let status = status_of(&replicas(0).worker("gpu-0", &registered("Allocated")));
    let (degraded, reason, message) = condition(&status, DEGRADED);
    assert_eq!((degraded, reason), ("True", "JobLost"));
    assert!(
        message.starts_with("1 worker to be removed had a job when Slurm lost the node record"),
        "{message}"
    );
    assert!(message.ends_with("delete the pod once the job may end (gpu-0)"), "{message}");
}

#[rstest]
#[case::four_minutes(64, "False")]
#[case::five_minutes(65, "True")]
fn slurm_unreachable_for_five_minutes_degrades(#[case] minutes: i64, #[case] expected: &str) {
    let fixture = two_workers(&registered("Idle")).unknown();
    let before = status_of(&fixture);
    assert_eq!(
        status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(60)),
        Some(Duration::from_secs(301))
    );
    assert_eq!(
        status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(65)),
        None,
        "Degraded is due already"
    );
    let unreachable = ("Unknown", "NotAnswering", "slurmrestd cannot be reached");
    assert_eq!(condition(&before, SLURM_REACHABLE), unreachable);
    let status = status_at(&with_status(fixture, before), &Execution::default(), minutes);
    let (degraded, reason, message) = condition(&status, DEGRADED);
    assert_eq!(degraded, expected);
    if degraded == "True" {
        assert_eq!(reason, "SlurmUnreachable");
        assert_eq!(
            message,
            "Slurm has been unreachable since 2023-03-28T11:40:00Z, and no worker is removed until it answers: \
            slurmrestd cannot be reached"
        );
    }
}

/// `Timestamp::MAX` plus any duration overflows.
#[test]
fn slurm_unreachable_since_a_future_time_does_not_degrade_yet() {
    let fixture = two_workers(&registered("Idle")).unknown();
    let mut before = status_of(&fixture);
    let reachable = before.conditions.iter_mut().find(|condition| condition.type_ == SLURM_REACHABLE);
    reachable.unwrap().last_transition_time = Time(Timestamp::MAX);
    assert!(status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(60)).is_some());
    assert_eq!(condition(&status_of(&with_status(fixture, before)), DEGRADED).0, "False");
}

#[test]
fn refusal_by_the_controller_is_reported_by_the_nodeset_at_fault() {
    let mut fixture = Fixture::new(&json!({}));
    let mut controller = (**fixture.observed.controller.as_ref().unwrap()).clone();
    let name = fixture.observed.nodeset.metadata.name.clone().unwrap();
    let refuse = |name: &str| json!({ "refusedNodeSets": [{ "name": name, "message": "fatal: no" }] });
    controller.status = serde_json::from_value(refuse(&name)).unwrap();
    fixture.observed.controller = Some(controller.clone().into());
    let status = status_of(&fixture);
    let (degraded, reason, message) = condition(&status, DEGRADED);
    assert_eq!((degraded, reason), ("True", "ConfigRefused"));
    assert!(message.contains("fatal: no"), "{message}");

    controller.status = serde_json::from_value(refuse("other")).unwrap();
    fixture.observed.controller = Some(controller.into());
    assert_eq!(condition(&status_of(&fixture), DEGRADED).0, "False");
}

#[test]
fn degraded_reports_all_obstacles() {
    let mut fixture = scheduled().nodeset(|nodeset| {
        let strategy = nodeset.spec.update_strategy.as_mut().unwrap();
        strategy.scheduled_update = None;
    });
    fixture.observed.controller = None;
    let status = status_of(&fixture);
    let expected =
        "Controller slurm does not exist; spec.updateStrategy.scheduledUpdate.startTime is missing";
    assert_eq!(condition(&status, DEGRADED), ("True", "ControllerMissing", expected));
}

#[test]
fn reservation_that_slurm_has_ended_is_reported_as_not_existing() {
    let fixture = with_reservation(scheduled(), 120);
    let status = status_of(&fixture);
    assert_eq!(condition(&status, RESERVATION_CREATED), ("True", "Created", RESERVATION_MESSAGE));
    let created = find(&status.conditions, RESERVATION_CREATED).unwrap();
    assert_eq!((created.last_transition_time.0, created.observed_generation), (minute(60), Some(1)));
    let ended = with_status(without_reservation(scheduled()), status).nodeset(|nodeset| {
        nodeset.metadata.generation = Some(4);
        let recorded = fixture.plan().metadata.unwrap().annotations;
        let recorded = recorded.into_iter().map(|(key, value)| (key, value.unwrap()));
        nodeset.metadata.annotations.get_or_insert_default().extend(recorded);
    });
    let status = status_at(&ended, &Execution::default(), 200);
    assert_eq!(condition(&status, RESERVATION_CREATED), ("False", "NotExists", RESERVATION_MESSAGE));
    let ended = find(&status.conditions, RESERVATION_CREATED).unwrap();
    assert_eq!((ended.last_transition_time.0, ended.observed_generation), (minute(200), Some(4)));
}

#[rstest]
#[case::another_strategy(|nodeset: &mut NodeSet| nodeset.spec.update_strategy = None)]
#[case::zero_replicas(|nodeset: &mut NodeSet| nodeset.spec.replicas = 0)]
fn condition_of_an_unneeded_reservation_is_removed(#[case] change: fn(&mut NodeSet)) {
    let status = status_of(&with_reservation(scheduled(), 120));
    let fixture = with_status(with_reservation(scheduled(), 120), status).nodeset(change);
    assert_eq!(find(&status_of(&fixture).conditions, RESERVATION_CREATED), None);
    assert_eq!(
        find(&status_of(&without_reservation(scheduled())).conditions, RESERVATION_CREATED),
        None,
        "never created"
    );
}

#[test]
fn rejected_reservation_degrades() {
    let effects = Execution { errors: vec![("Rejected", "reservation refused".to_owned())], waiting: None };
    let moved = with_status(
        with_reservation(scheduled(), 180),
        with_condition(RESERVATION_CREATED, "True", "Created"),
    );
    let status = status_at(&moved, &effects, 60);
    assert_eq!(condition(&status, DEGRADED), ("True", "Rejected", "reservation refused"));
}

/// Change of a pod: unschedulable since this minute.
fn unschedulable(since: i64) -> Value {
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 node(s) didn't match.", "lastTransitionTime": minute(since) });
    json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [condition], "containerStatuses": [] } })
}

#[test]
fn workers_unschedulable_for_thirty_seconds_degrade() {
    let fixture = replicas(2).worker("gpu-0", &unschedulable(60)).worker("gpu-1", &unschedulable(60));
    let before = status_at(&fixture, &Execution::default(), 60);
    assert_eq!(condition(&before, DEGRADED).0, "False");
    assert_eq!(
        status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(60)),
        Some(Duration::from_secs(31))
    );
    let after = status_at(&fixture, &Execution::default(), 61);
    let text =
        "no Kubernetes node fits 2 workers: 0/3 nodes are available: 3 node(s) didn't match. (gpu-0, gpu-1)";
    assert_eq!(condition(&after, DEGRADED), ("True", "Unschedulable", text));
    assert_eq!(condition(&after, READY), ("False", "Unschedulable", text));
}

#[test]
fn daemon_set_mode_without_a_fitting_node_is_reported() {
    let fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet",
        "template": { "spec": { "nodeSelector": { "no": "such" } } } }));
    let status = status_of(&fixture);
    assert_eq!(
        condition(&status, PROGRESSING),
        ("False", "NoNodeFits", "no Kubernetes node fits the template")
    );
    assert_eq!(condition(&status, READY).0, "True");
}
