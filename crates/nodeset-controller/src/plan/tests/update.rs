//! Updates: which workers are replaced, when, and how many at a time.

use crate::plan::WaitFor;
use crate::plan::fixture::Fixture;
use crate::plan::testing::minute;
use rstest::rstest;
use serde_json::{Value, json};

/// This worker with an older revision.
fn old(change: &Value) -> Value {
    let mut old = json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } });
    crate::plan::testing::merge(&mut old, change);
    old
}

fn not_ready() -> Value {
    json!({ "status": { "conditions": [] } })
}

fn marked() -> Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": "update" } } })
}

fn fixture(replicas: usize, max_unavailable: &Value, workers: &[Value]) -> Fixture {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": max_unavailable } });
    let mut fixture = Fixture::new(&json!({ "replicas": replicas, "updateStrategy": strategy }));
    for (ordinal, change) in workers.iter().enumerate() {
        let name = format!("gpu-{ordinal}");
        fixture = fixture.worker(&name, change).slurm(&name, &["IDLE"], "");
    }
    fixture
}

/// The workers marked for an update.
fn chosen(fixture: &Fixture) -> Vec<String> {
    let effects = fixture.effects();
    let marks = effects.iter().filter_map(|effect| effect.strip_prefix("mark ")?.split_once(" for update"));
    marks.map(|(name, _)| name.to_owned()).collect()
}

#[rstest]
#[case::percentage_rounds_up(2, json!("10%"), vec![json!({}), old(&json!({}))], &["gpu-1"])]
#[case::all_up_to_date(2, json!(1), vec![json!({}), json!({})], &[])]
#[case::updated_worker_is_not_ready(2, json!(1), vec![not_ready(), old(&json!({}))], &[])]
#[case::unhealthy_outdated_workers_need_no_budget(3, json!(1), vec![json!({}), old(&not_ready()), old(&json!({}))], &["gpu-1"])]
#[case::unhealthy_workers_count_as_unavailable(3, json!(2), vec![not_ready(), old(&not_ready()), old(&json!({}))], &["gpu-1"])]
#[case::one_is_terminating(2, json!(1), vec![old(&json!({})), old(&json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }))], &[])]
#[case::highest_ordinal_first(4, json!("50%"), vec![not_ready(), old(&json!({})), old(&json!({})), old(&json!({}))], &["gpu-3"])]
#[case::zero_max_unavailable(2, json!(0), vec![old(&json!({})), old(&json!({}))], &[])]
#[case::invalid_max_unavailable_is_one(2, json!("many"), vec![old(&json!({})), old(&json!({}))], &["gpu-1"])]
#[case::max_unavailable_above_replicas(2, json!(50), vec![old(&json!({})), old(&json!({}))], &["gpu-1", "gpu-0"])]
fn rolling_update_keeps_enough_workers_available(
    #[case] replicas: usize,
    #[case] max_unavailable: Value,
    #[case] workers: Vec<Value>,
    #[case] expected: &[&str],
) {
    assert_eq!(chosen(&fixture(replicas, &max_unavailable, &workers)), expected);
}

#[test]
fn marked_worker_stays_chosen_until_replaced() {
    // gpu-0 was chosen before; gpu-1 would be chosen now.
    let fixture = fixture(2, &json!(1), &[old(&marked()), old(&json!({}))]).slurm(
        "gpu-0",
        &["MIXED", "DRAIN"],
        "slurm-operator: x",
    );
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn readiness_flap_does_not_drain_more_workers_than_may_be_unavailable() {
    let flapping: Vec<_> = (0..5).map(|_| old(&not_ready())).collect();
    assert_eq!(chosen(&fixture(5, &json!(2), &flapping)).len(), 2);
    // They were drained before; three get their jobs back.
    let mut drained = fixture(5, &json!(2), &[(); 5].map(|()| old(&marked())));
    for ordinal in 0..5 {
        drained = drained.slurm(&format!("gpu-{ordinal}"), &["MIXED", "DRAIN"], "slurm-operator: x");
    }
    let undone: Vec<_> = drained.effects();
    assert_eq!(undone, [2, 1, 0].map(|gpu| format!(r#"unmark gpu-{gpu} Undrain("gpu-{gpu}")"#)));
}

#[test]
fn outdated_workers_that_never_ran_are_all_replaced_at_once() {
    let pending = json!({ "spec": { "nodeName": "" },
        "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    let mut fixture = fixture(3, &json!(1), &[(); 3].map(|()| old(&pending)));
    for ordinal in 0..3 {
        fixture = fixture.without_slurm_node(&format!("gpu-{ordinal}"));
    }
    let deletes = [2, 1, 0].map(|gpu| format!("delete gpu-{gpu} (Outdated, no evidence needed)"));
    assert_eq!(fixture.effects(), deletes);
}

#[test]
fn broken_worker_takes_the_turn_of_one_that_waits_for_it() {
    // gpu-0 is drained, and may not be deleted while gpu-1 is unavailable, which only the update can repair.
    let fixture = fixture(2, &json!(1), &[old(&marked()), old(&not_ready())])
        .slurm("gpu-0", &["IDLE", "DRAIN"], "slurm-operator: x")
        .slurm("gpu-1", &["DOWN", "NOT_RESPONDING"], "Not responding");
    assert_eq!(chosen(&fixture), ["gpu-1"]);
    assert!(
        fixture.effects().contains(&r#"unmark gpu-0 Undrain("gpu-0")"#.to_owned()),
        "{:?}",
        fixture.effects()
    );
}

#[rstest]
#[case::down(&["DOWN"])]
#[case::invalid(&["IDLE", "INVALID_REG"])]
#[case::drained_by_slurmctld(&["IDLE", "DRAIN"])]
#[case::not_responding(&["IDLE", "NOT_RESPONDING"])]
fn update_stops_at_updated_workers_that_slurm_gives_no_jobs(#[case] states: &[&str]) {
    let workers = [old(&json!({})), old(&json!({})), json!({})];
    let useful = fixture(3, &json!(1), &workers);
    assert_eq!(chosen(&useful), ["gpu-1"]);
    assert_eq!(useful.plan().useless, []);
    let useless = useful.slurm("gpu-2", states, "Low RealMemory");
    assert!(chosen(&useless).is_empty(), "{:?}", useless.effects());
    let plan = useless.plan();
    let shown: Vec<_> =
        plan.useless.iter().map(|worker| (worker.pod.as_str(), worker.reason.as_str())).collect();
    assert_eq!(shown, [("gpu-2", "Low RealMemory")]);
}

#[test]
fn rollback_undrains_the_marked_worker() {
    let fixture = fixture(1, &json!(1), &[marked()]).slurm("gpu-0", &["IDLE", "DRAIN"], "slurm-operator: x");
    assert_eq!(fixture.effects(), [r#"unmark gpu-0 Undrain("gpu-0")"#]);
}

#[test]
fn drained_worker_is_not_deleted_while_another_is_unavailable() {
    let fixture = fixture(3, &json!(1), &[not_ready(), json!({}), old(&marked())]).slurm(
        "gpu-2",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    let recovered = fixture.worker("gpu-0", &json!({}));
    assert_eq!(recovered.effects(), ["delete gpu-2 (Outdated, drained)"]);
}

#[test]
fn scale_in_does_not_undrain_a_worker_being_updated() {
    let fixture = fixture(2, &json!(1), &[json!({}), old(&marked()), json!({})]).slurm(
        "gpu-1",
        &["IDLE", "DRAIN"],
        "slurm-operator: x",
    );
    let effects = fixture.effects();
    assert!(effects.iter().all(|effect| !effect.contains("unmark")), "{effects:?}");
}

#[test]
fn on_delete_replaces_no_worker() {
    let fixture = Fixture::new(&json!({ "replicas": 1, "updateStrategy": { "type": "OnDelete" } }))
        .worker("gpu-0", &old(&not_ready()))
        .slurm("gpu-0", &["IDLE"], "");
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}

#[test]
fn scheduled_update_replaces_reserved_workers_only() {
    let strategy =
        json!({ "type": "ScheduledUpdate", "scheduledUpdate": { "startTime": "2023-03-27T02:00:00Z" } });
    let node = |name: &str, reservation: &str| json!({ "name": name, "state": ["IDLE", "MAINTENANCE"], "reservation": reservation });
    let fixture = Fixture::new(&json!({ "replicas": 3, "updateStrategy": strategy }))
        .worker("gpu-0", &old(&json!({})))
        .worker("gpu-1", &old(&json!({})))
        .worker("gpu-2", &old(&json!({})))
        .slurm_node(node("gpu-0", "SlurmOperatorMaint-gpu"))
        .slurm_node(node("gpu-1", "SlurmOperatorMaint-gpu-custom"))
        .slurm("gpu-2", &["IDLE"], "");
    assert_eq!(chosen(&fixture), ["gpu-0"]);
}

/// The reservation keeps other jobs off the workers, so maxUnavailable does not apply.
#[test]
fn scheduled_update_replaces_all_drained_workers_at_once() {
    let strategy =
        json!({ "type": "ScheduledUpdate", "scheduledUpdate": { "startTime": "2023-03-27T02:00:00Z" } });
    let fixture = ["gpu-0", "gpu-1", "gpu-2"].iter().fold(
        Fixture::new(&json!({ "replicas": 3, "updateStrategy": strategy })),
        |fixture, name| {
            fixture
                .worker(name, &old(&marked()))
                .slurm_node(json!({ "name": name, "reason": "slurm-operator: x",
                "state": ["IDLE", "DRAIN", "MAINTENANCE"], "reservation": "SlurmOperatorMaint-gpu" }))
        },
    );
    let deletes = fixture.effects().iter().filter(|effect| effect.starts_with("delete")).count();
    assert_eq!(deletes, 3, "{:?}", fixture.effects());
}

#[test]
fn healthy_unregistered_worker_is_replaced_after_two_minutes() {
    let two = |ready: i64| {
        let ready = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": minute(ready) }] } });
        fixture(2, &json!(1), &[json!({}), ready]).without_slurm_node("gpu-1")
    };
    assert!(two(59).effects().is_empty(), "the worker may still register");
    assert_eq!(two(59).plan().requeue_after, Some(std::time::Duration::from_secs(61)));
    let elsewhere = two(50).slurm("other", &["IDLE"], "");
    assert!(elsewhere.effects().is_empty(), "its slurmd may be registered under another name");
    assert_eq!(elsewhere.plan().waiting[0].for_, WaitFor::OtherName);
    let mut again = two(50);
    again.observed.retry_times.insert("gpu-1".to_owned(), minute(61));
    assert!(again.effects().is_empty(), "it backs off after a replacement in vain");
    assert_eq!(two(50).effects(), ["delete gpu-1 (Unregistered, absent)"]);
}

#[rstest]
#[case::record_lost(true, Some(61))]
#[case::registered(false, None)]
fn unregistered_worker_is_requeued_for_its_replacement(
    #[case] record_lost: bool,
    #[case] seconds: Option<u64>,
) {
    let registered = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": minute(59) },
        { "type": "SlurmNodeStateIdle", "status": "True" },
    ] } });
    let fixture = fixture(2, &json!(1), &[json!({}), registered]);
    let fixture = if record_lost { fixture.without_slurm_node("gpu-1") } else { fixture };
    assert_eq!(fixture.plan().requeue_after, seconds.map(std::time::Duration::from_secs));
}

#[test]
fn lost_slurm_state_replaces_idle_workers_one_at_a_time() {
    let state = |state: &str| {
        json!({ "status": { "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": minute(0) },
            { "type": format!("SlurmNodeState{state}"), "status": "True" },
        ] } })
    };
    let mut fixture =
        fixture(4, &json!(1), &[state("Mixed"), state("Idle"), state("Idle"), state("Allocated")]);
    for ordinal in 0..4 {
        fixture = fixture.without_slurm_node(&format!("gpu-{ordinal}"));
    }
    assert_eq!(fixture.effects(), ["mark gpu-2 for update"]);
}

#[test]
fn unhealthy_outdated_unregistered_worker_is_deleted_directly() {
    let workers = [not_ready(), old(&not_ready()), old(&json!({}))];
    let fixture = fixture(3, &json!(1), &workers).without_slurm_node("gpu-1");
    assert_eq!(fixture.effects(), ["delete gpu-1 (Outdated, absent)"]);
}

#[test]
fn terminating_surplus_worker_needs_no_budget() {
    let terminating = json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } });
    assert_eq!(chosen(&fixture(1, &json!(1), &[old(&json!({})), old(&terminating)])), ["gpu-0"]);
}

#[test]
fn zero_replicas_have_no_update() {
    let failed = json!({ "status": { "phase": "Failed", "conditions": [] } });
    let fixture = fixture(0, &json!("100%"), &[failed, old(&json!({}))]);
    assert_eq!(chosen(&fixture), [""; 0]);
    assert!(fixture.effects()[1].starts_with("mark gpu-1 for scale-in"), "{:?}", fixture.effects());
}

#[rstest]
#[case::newer_is_unhealthy(0, 30)]
#[case::older_is_unhealthy(30, 0)]
fn unhealthy_worker_is_replaced_first_whatever_its_age(#[case] healthy: i64, #[case] unhealthy: i64) {
    let created_at = |at: i64, change: &Value| {
        let mut created_at = json!({ "metadata": { "creationTimestamp": minute(at) } });
        crate::plan::testing::merge(&mut created_at, change);
        old(&created_at)
    };
    let workers = [created_at(healthy, &json!({})), created_at(unhealthy, &not_ready())];
    assert_eq!(chosen(&fixture(2, &json!(1), &workers)), ["gpu-1"]);
}

#[test]
fn workers_are_not_unregistered_when_no_slurm_is_expected() {
    let fixture = fixture(2, &json!(1), &[json!({}), json!({})]).view(crate::slurm::View::NoRestApi);
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
    assert_eq!(fixture.plan().requeue_after, None);
}

/// Another operator may have written a revision name there.
#[test]
fn hash_in_the_status_is_ignored() {
    let fixture = fixture(1, &json!(1), &[json!({})]);
    let expected = fixture.plan().revisions;
    let fixture = fixture.nodeset(|nodeset| {
        nodeset.status = Some(slinky_api::v1beta1::NodeSetStatus {
            node_set_hash: "gpu-old".to_owned(),
            ..slinky_api::v1beta1::NodeSetStatus::default()
        });
    });
    assert_eq!(fixture.plan().revisions, expected);
    assert!(fixture.effects().is_empty(), "{:?}", fixture.effects());
}
