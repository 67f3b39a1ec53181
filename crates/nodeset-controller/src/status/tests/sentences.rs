//! What people read.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use slinky_api::v1beta1::NodeSet;

fn deleted(nodeset: &mut NodeSet) {
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

/// With the reservation that the NodeSet wishes for, or one like it.
fn reserved(mut fixture: Fixture, start: i64) -> Fixture {
    let time = |minutes| json!({ "set": true, "number": minute(minutes).as_second() });
    let reservation = json!({ "name": "SlurmOperatorMaint-gpu", "node_list": "gpu-[0-1]", "users": "slurm",
        "flags": ["MAINT", "IGNORE_JOBS", "SPEC_NODES"], "start_time": time(start), "end_time": time(start + 30) });
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is not known") };
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

/// Slurm answers, and has no reservations.
fn unreserved(fixture: Fixture) -> Fixture {
    let mut fixture = reserved(fixture, 0);
    let View::Known(known) = &mut fixture.observed.slurm else { panic!("Slurm is not known") };
    Arc::make_mut(&mut known.snapshot).reservations = Some(BTreeMap::default());
    fixture
}

const WISH: &str = "SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min [IGNORE_JOBS, MAINT]";

#[rstest]
#[case::creating(replicas(3).workers(1), "Creating", "creating 2 workers")]
#[case::starting(replicas(2).workers(2).worker("gpu-1", &unready()), "Starting", "1 worker is not available yet (gpu-1)")]
#[case::registering(replicas(2).workers(2).without_slurm_node("gpu-0").without_slurm_node("gpu-1"), "Registering",
    "2 workers are not registered in Slurm (gpu-0, gpu-1)")]
#[case::draining(replicas(1).workers(6).slurm("gpu-3", &["MIXED"], ""), "Draining",
    "5 workers are draining until no job is left (gpu-0, gpu-1, gpu-2 and 2 more)")]
#[case::updating(replicas(4).workers(4).worker("gpu-3", &outdated()), "Draining",
    "1 worker is draining until no job is left (gpu-3); updating: 3 of 4 workers are up to date")]
#[case::on_delete_with_too_few(on_delete().workers(4).worker("gpu-1", &outdated()), "Creating",
    "creating 1 worker; 1 worker is outdated until the pod is deleted (gpu-1)")]
#[case::in_the_reservation(scheduled().worker("gpu-0", &outdated()).worker("gpu-1", &chosen()).slurm_node(
    json!({ "name": "gpu-1", "state": ["ALLOCATED", "DRAIN", "MAINTENANCE"], "reason": "slurm-operator: update",
        "reservation": "SlurmOperatorMaint-gpu" })), "Draining",
    "1 worker is draining until no job is left (gpu-1); updating: 0 of 2 workers are up to date; 1 worker is outdated \
     until a reservation for updates begins (gpu-0)")]
#[case::registering_while_slurm_is_silent(replicas(1).workers(1).unknown(), "Registering",
    "1 worker is not known to be registered in Slurm (gpu-0)")]
#[case::ending(replicas(1).workers(1).worker("gpu-1", &json!({ "metadata": { "deletionTimestamp": minute(50) } })),
    "Ending", "1 worker is terminating (gpu-1)")]
#[case::waiting_for_slurm(replicas(0).worker("gpu-0", &seen("Idle")).unknown(), "AwaitingSlurm",
    "1 worker is to be removed, waiting for an answer from Slurm since 2023-03-28T11:40:00Z: slurmrestd cannot be reached (gpu-0)")]
#[case::waiting_for_a_slurm_that_was(replicas(0).worker("gpu-0", &seen("Idle")).view(View::NotExpected), "AwaitingSlurm",
    "1 worker is to be removed, waiting for an answer from Slurm, which has no RestApi any more (gpu-0)")]
#[case::deleting(replicas(2).workers(1).slurm("gpu-0", &["IDLE"], "").nodeset(deleted), "Deleting",
    "the deletion waits for 1 worker to be removed; annotation nodeset.slinky.slurm.net/force-delete=true ends it without \
     waiting; 1 worker is draining until no job is left (gpu-0)")]
#[case::deleting_with_jobs(replicas(2).jobs("gpu", 3).nodeset(deleted), "Deleting",
    "the deletion waits for 3 job records that still name its partition; annotation \
     nodeset.slinky.slurm.net/force-delete=true ends it without waiting")]
#[case::deleting_without_slurm(replicas(2).unknown().nodeset(deleted), "Deleting",
    "the deletion waits for Slurm to list the job records that name its partition; annotation \
     nodeset.slinky.slurm.net/force-delete=true ends it without waiting")]
#[case::deleting_while_open(replicas(2).jobs("gpu", 0).open(&["gpu"]).nodeset(deleted), "Deleting",
    "the deletion waits for its partition to take no new jobs; annotation \
     nodeset.slinky.slurm.net/force-delete=true ends it without waiting")]
#[case::deleted(replicas(2).jobs("other", 1).open(&["other"]).nodeset(deleted), "Deleting",
    "the finalizers are being removed")]
fn what_is_under_way_is_told(#[case] fixture: Fixture, #[case] reason: &str, #[case] message: &str) {
    let status = told(&fixture);
    assert_eq!(condition(&status, PROGRESSING), ("True", reason, message));
}

/// An update that waits for a person, or for its time, keeps nobody from relying on the workers.
#[rstest]
#[case::on_delete(on_delete().workers(5).worker("gpu-1", &outdated()), "Outdated",
    "1 worker is outdated until the pod is deleted (gpu-1)")]
#[case::scheduled(unreserved(scheduled().worker("gpu-1", &outdated())), "UpdateScheduled",
    "1 worker is outdated until a reservation for updates begins (gpu-1)")]
#[case::reserved(reserved(scheduled().worker("gpu-1", &outdated()), 120), "UpdateScheduled",
    "1 worker is outdated until reservation SlurmOperatorMaint-gpu starts 2023-03-28T12:40:00Z for 30 min \
     [IGNORE_JOBS, MAINT] (gpu-1)")]
fn what_waits_for_a_person_or_its_time_is_not_under_way(
    #[case] fixture: Fixture,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let status = told(&fixture);
    assert_eq!(condition(&status, PROGRESSING), ("False", reason, message));
    let (is_ready, reason, message) = condition(&status, READY);
    assert_eq!((is_ready, reason), ("True", AS_EXPECTED));
    assert!(message.ends_with("workers available, registered in Slurm"), "{message}");
    assert_eq!(condition(&status, DEGRADED).0, "False");
}

#[test]
fn workers_that_a_scheduled_update_replaces_now_do_not_count() {
    let status = told(&scheduled().worker("gpu-1", &chosen()));
    assert_eq!(condition(&status, READY).0, "False");
}

/// An outdated worker that was chosen to be replaced.
fn chosen() -> Value {
    let marks = json!({ "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "update" });
    json!({ "metadata": { "labels": outdated()["metadata"]["labels"], "annotations": marks } })
}

#[test]
fn those_that_wait_for_others_and_for_their_next_try_are_told() {
    let chosen = chosen();
    let mut fixture = Fixture::new(
        &json!({ "replicas": 3, "updateStrategy": { "rollingUpdate": { "maxUnavailable": 1 } } }),
    )
    .workers(3)
    .worker("gpu-0", &json!({ "status": { "phase": "Failed", "conditions": [] } }))
    .worker("gpu-1", &chosen)
    .slurm("gpu-1", &["IDLE", "DRAIN"], "slurm-operator: update");
    fixture.observed.retry_times.insert("0".to_owned(), minute(61));
    fixture.observed.retry_times.insert("gpu-0".to_owned(), minute(61));
    let status = told(&fixture);
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
fn effects_that_wait_are_told_as_long_as_there_are_some() {
    let effects = Execution { errors: vec![], waiting: Some("an earlier batch is open".to_owned()) };
    let status = told_at(&replicas(2).workers(1), &effects, 60);
    assert_eq!(
        condition(&status, PROGRESSING),
        ("True", "Creating", "creating 1 worker; writes wait for an earlier batch is open")
    );
    let mirrored = Fixture::new(&json!({ "replicas": 0 }));
    assert_eq!(condition(&told_at(&mirrored, &effects, 60), PROGRESSING).0, "False");
}

#[test]
fn what_failed_is_told_once_each_as_long_as_something_is_left_to_do() {
    let failures = ["gpu-1: refused", "gpu-1: refused", "gpu-2: refused", "gpu-3: refused", "gpu-4: late"];
    let errors = failures.into_iter().map(|text| ("Rejected", text.to_owned())).collect();
    let effects = Execution { errors, waiting: None };
    let expected = ("True", "Rejected", "gpu-1: refused, gpu-2: refused, gpu-3: refused and 1 more");
    let status = told_at(&replicas(2).workers(1), &effects, 60);
    assert_eq!(condition(&status, DEGRADED), expected);
    assert_eq!(condition(&status, READY), ("False", expected.1, expected.2));
    assert_eq!(condition(&told_at(&replicas(0), &effects, 60), DEGRADED).0, "False");
}

#[test]
fn whoever_lost_its_job_waits_for_a_person() {
    let status = told(&replicas(0).worker("gpu-0", &seen("Allocated")));
    let (holds, reason, message) = condition(&status, DEGRADED);
    assert_eq!((holds, reason), ("True", "JobLost"));
    assert!(
        message.starts_with("1 worker to be removed had a job when Slurm lost the node record"),
        "{message}"
    );
    assert!(message.ends_with("delete the pod once the job may end (gpu-0)"), "{message}");
}

#[rstest]
#[case::a_while(64, "False")]
#[case::long(65, "True")]
fn silence_becomes_trouble(#[case] minutes: i64, #[case] degraded: &str) {
    let fixture = two(&seen("Idle")).unknown();
    let before = told(&fixture);
    assert_eq!(
        status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(60)),
        Some(Duration::from_secs(301))
    );
    assert_eq!(
        status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(65)),
        None,
        "it was told"
    );
    let since = ("Unknown", "NotAnswering", "slurmrestd cannot be reached");
    assert_eq!(condition(&before, SLURM_REACHABLE), since);
    let status = told_at(&written(fixture, before), &Execution::default(), minutes);
    let (holds, reason, message) = condition(&status, DEGRADED);
    assert_eq!(holds, degraded);
    if holds == "True" {
        assert_eq!(reason, "SlurmUnreachable");
        assert_eq!(
            message,
            "Slurm has been unreachable since 2023-03-28T11:40:00Z, and no worker is removed until it answers: \
            slurmrestd cannot be reached"
        );
    }
}

/// The last moment that there is: no time can be counted from it on.
#[test]
fn a_silence_since_the_end_of_time_is_no_trouble_yet() {
    let fixture = two(&seen("Idle")).unknown();
    let mut before = told(&fixture);
    let unreachable_for = before.conditions.iter_mut().find(|condition| condition.type_ == SLURM_REACHABLE);
    unreachable_for.unwrap().last_transition_time = Time(Timestamp::MAX);
    assert!(status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(60)).is_some());
    assert_eq!(condition(&told(&written(fixture, before)), DEGRADED).0, "False");
}

#[test]
fn obstacles_are_all_told() {
    let mut fixture = scheduled().nodeset(|nodeset| {
        let strategy = nodeset.spec.update_strategy.as_mut().unwrap();
        strategy.scheduled_update = None;
    });
    fixture.observed.controller = None;
    let status = told(&fixture);
    let expected =
        "Controller slurm does not exist; spec.updateStrategy.scheduledUpdate.startTime is missing";
    assert_eq!(condition(&status, DEGRADED), ("True", "ControllerMissing", expected));
}

#[test]
fn the_reservation_is_remembered_when_slurm_has_ended_it() {
    let fixture = reserved(scheduled(), 120);
    let status = told(&fixture);
    assert_eq!(condition(&status, RESERVATION_CREATED), ("True", "Created", WISH));
    let created = find(&status.conditions, RESERVATION_CREATED).unwrap();
    assert_eq!((created.last_transition_time.0, created.observed_generation), (minute(60), Some(1)));
    let gone = written(unreserved(scheduled()), status).nodeset(|nodeset| {
        nodeset.metadata.generation = Some(4);
        let recorded = fixture.plan().metadata.unwrap().annotations;
        let recorded = recorded.into_iter().map(|(key, value)| (key, value.unwrap()));
        nodeset.metadata.annotations.get_or_insert_default().extend(recorded);
    });
    let status = told_at(&gone, &Execution::default(), 200);
    assert_eq!(condition(&status, RESERVATION_CREATED), ("False", "NotExists", WISH));
    let gone = find(&status.conditions, RESERVATION_CREATED).unwrap();
    assert_eq!((gone.last_transition_time.0, gone.observed_generation), (minute(200), Some(4)));
}

#[rstest]
#[case::another_strategy(|nodeset: &mut NodeSet| nodeset.spec.update_strategy = None)]
#[case::nobody_to_update(|nodeset: &mut NodeSet| nodeset.spec.replicas = 0)]
fn a_reservation_that_nobody_wants_is_not_told(#[case] change: fn(&mut NodeSet)) {
    let status = told(&reserved(scheduled(), 120));
    let fixture = written(reserved(scheduled(), 120), status).nodeset(change);
    assert_eq!(find(&told(&fixture).conditions, RESERVATION_CREATED), None);
    assert_eq!(find(&told(&unreserved(scheduled())).conditions, RESERVATION_CREATED), None, "never made");
}

#[test]
fn a_refused_reservation_is_told() {
    let effects = Execution { errors: vec![("Rejected", "reservation refused".to_owned())], waiting: None };
    let moved = written(reserved(scheduled(), 180), with_condition(RESERVATION_CREATED, "True", "Created"));
    let status = told_at(&moved, &effects, 60);
    assert_eq!(condition(&status, DEGRADED), ("True", "Rejected", "reservation refused"));
}

/// A pod for which the scheduler finds no place since that minute.
fn homeless(since: i64) -> Value {
    let told = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 node(s) didn't match.", "lastTransitionTime": minute(since) });
    json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [told], "containerStatuses": [] } })
}

#[test]
fn a_worker_that_no_node_takes_is_trouble_after_a_while() {
    let fixture = replicas(2).worker("gpu-0", &homeless(60)).worker("gpu-1", &homeless(60));
    let before = told_at(&fixture, &Execution::default(), 60);
    assert_eq!(condition(&before, DEGRADED).0, "False");
    assert_eq!(
        status_changes_in(&fixture.observed, &fixture.plan(), &before, minute(60)),
        Some(Duration::from_secs(31))
    );
    let after = told_at(&fixture, &Execution::default(), 61);
    let text =
        "no Kubernetes node fits 2 workers: 0/3 nodes are available: 3 node(s) didn't match. (gpu-0, gpu-1)";
    assert_eq!(condition(&after, DEGRADED), ("True", "Unschedulable", text));
    assert_eq!(condition(&after, READY), ("False", "Unschedulable", text));
}

#[test]
fn that_no_node_fits_a_daemon_is_told() {
    let fixture = Fixture::new(&json!({ "scalingMode": "DaemonSet",
        "template": { "spec": { "nodeSelector": { "no": "such" } } } }));
    let told = told(&fixture);
    assert_eq!(
        condition(&told, PROGRESSING),
        ("False", "NoNodeFits", "no Kubernetes node fits the template")
    );
    assert_eq!(condition(&told, READY).0, "True");
}
