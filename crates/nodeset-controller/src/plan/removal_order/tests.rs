use super::*;
use crate::plan::testing::{minute, pod};
use crate::worker::{Cause, JobState, Ready};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

fn worker((name, change): &(&str, Value)) -> Worker {
    Worker::new(pod(name, change))
}

fn annotated(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { format!("nodeset.slinky.slurm.net/{key}"): value } } })
}

fn ready_since(time: Option<i64>) -> Value {
    let time = time.map(|time| minute(time).to_string());
    json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": time }] } })
}

fn phase(phase: &str) -> Value {
    json!({ "status": { "phase": phase, "conditions": null } })
}

/// Sorts the workers from several input orders.
fn assert_order(expected: &[(&str, Value)]) {
    let mut workers: Vec<_> = expected.iter().map(worker).collect();
    let names: Vec<_> = expected.iter().map(|(name, _)| (*name).to_owned()).collect();
    for turn in 0..workers.len() {
        workers.rotate_left(turn);
        workers.reverse();
        workers.sort_by(removal_order);
        assert_eq!(workers.iter().map(Worker::name).collect::<Vec<_>>(), names, "rotated by {turn}");
    }
}

#[test]
fn least_useful_worker_is_removed_first() {
    let mut oldest = ready_since(Some(-60));
    oldest["metadata"] = json!({ "creationTimestamp": minute(-600) });
    assert_order(&[
        (
            "unscheduled",
            json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": null } }),
        ),
        ("pending", phase("Pending")),
        ("unknown", phase("Unknown")),
        ("not-ready", phase("Running")),
        ("cordoned", annotated("pod-cordon", "true")),
        ("ordinal-1", json!({})),
        ("ready-without-time", ready_since(None)),
        ("ready-now", ready_since(Some(0))),
        ("ready-longer", ready_since(Some(-60))),
        ("oldest", oldest),
        ("busy", annotated("pod-deadline", "2030-01-01T00:00:00Z")),
        ("costly", annotated("pod-deletion-cost", "1")),
    ]);
}

#[rstest]
#[case::lower_cost_first(vec![
    ("a-0", annotated("pod-deletion-cost", "-10")),
    ("a-9", json!({})),
    ("a-2", annotated("pod-deletion-cost", "10")),
])]
#[case::invalid_cost_is_zero(vec![
    ("a-1", annotated("pod-deletion-cost", "+5")),
    ("a-0", json!({})),
])]
#[case::idle_first_then_earliest_deadline(vec![
    ("a-0", json!({})),
    ("a-1", annotated("pod-deadline", "2030-01-01T10:00:00Z")),
    ("a-2", annotated("pod-deadline", "2030-01-01T11:00:00Z")),
    ("a-3", annotated("pod-deadline", "2030-01-01T14:00:00+02:00")),
])]
#[case::highest_ordinal_first(vec![
    ("a-10", json!({})),
    ("a-9", json!({})),
    ("a-0", json!({})),
    ("a-x", json!({})),
])]
#[case::highest_ordinal_first_among_cordoned(vec![
    ("a-1", annotated("pod-cordon", "true")),
    ("a-0", annotated("pod-cordon", "true")),
    ("a-2", json!({})),
])]
#[case::cost_outweighs_cordon_and_deadline(vec![
    ("a-1", json!({})),
    ("a-0", annotated("pod-deadline", "2030-01-01T00:00:00Z")),
    ("a-2", json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true",
        "nodeset.slinky.slurm.net/pod-deadline": "2030-01-01T00:00:00Z",
        "nodeset.slinky.slurm.net/pod-deletion-cost": "100",
    } } })),
])]
#[case::finished_ranks_like_pending(vec![
    ("a-9", phase("Failed")),
    ("a-8", phase("Pending")),
    ("a-7", phase("Succeeded")),
    ("a-10", phase("Running")),
])]
#[case::newest_first_and_missing_time_is_newest(vec![
    ("no-time", json!({ "metadata": { "creationTimestamp": null } })),
    ("newer", json!({ "metadata": { "creationTimestamp": minute(5) } })),
    ("older", json!({ "metadata": { "creationTimestamp": minute(4) } })),
])]
#[case::name_breaks_ties(vec![("x", json!({})), ("y", json!({})), ("z", json!({}))])]
fn first_difference_decides_the_order(#[case] expected: Vec<(&str, Value)>) {
    assert_order(&expected);
}

/// A terminating worker counts as removed before any other, whatever its cost.
#[test]
fn terminating_worker_is_removed_first() {
    let mut terminating_pod = annotated("pod-deletion-cost", "1000");
    terminating_pod["metadata"]["deletionTimestamp"] = json!(minute(0));
    assert_order(&[("a-0", terminating_pod), ("a-1", phase("Pending")), ("a-2", json!({}))]);
}

prop_compose! {
    /// Few values for each field, so that many workers are equal in most of them.
    fn any_worker()(
        (terminating, bound, phase, ready) in (any::<bool>(), any::<bool>(), 0..5_usize, 0..4_i64),
        (cost, deadline, cordon) in (-1..2_i32, 0..3_i64, 0..3_usize),
        (ordinal, created, name, uid) in (-1..3_i32, 0..3_i64, 0..3, 0..3),
    ) -> Worker {
        let metadata = json!({ "metadata": { "uid": format!("u{uid}") } });
        Worker {
            terminating,
            node: bound.then(|| "node".to_owned()),
            phase: [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Unknown][phase],
            ready: (ready > 0).then(|| Ready { since: (ready > 1).then(|| minute(ready)) }),
            cost,
            job_state: if deadline > 0 { JobState::Until(minute(deadline)) } else { JobState::None },
            cordon: [Cordon::None, Cordon::Person, Cordon::Ours(Cause::Update)][cordon],
            ordinal: (ordinal >= 0).then_some(ordinal),
            created: (created > 0).then(|| minute(created)),
            ..Worker::new(pod(&format!("p{name}"), &metadata))
        }
    }
}

proptest! {
    #[test]
    fn removal_order_is_total(one in any_worker(), two in any_worker(), three in any_worker()) {
        prop_assert_eq!(removal_order(&one, &two), removal_order(&two, &one).reverse());
        prop_assert_eq!(removal_order(&one, &one), Ordering::Equal);
        if removal_order(&one, &two).is_le() && removal_order(&two, &three).is_le() {
            prop_assert!(removal_order(&one, &three).is_le());
        }
        if removal_order(&one, &two).is_eq() {
            prop_assert_eq!((one.name(), one.reference().uid), (two.name(), two.reference().uid));
        }
    }

    #[test]
    fn removal_order_is_independent_of_input_order(
        (workers, shuffled) in prop::collection::vec(any_worker(), 0..12)
            .prop_flat_map(|workers| (Just(workers.clone()), Just(workers).prop_shuffle()))
    ) {
        let sorted = |mut workers: Vec<Worker>| {
            workers.sort_by(removal_order);
            workers.into_iter().map(|worker| format!("{worker:?}")).collect::<Vec<_>>()
        };
        // Two versions of one pod do not occur; workers of equal rank have no defined order.
        let distinct = |workers: &[Worker]| {
            workers.iter().enumerate().all(|(at, one)| workers[..at].iter().all(|other| !removal_order(one, other).is_eq()))
        };
        prop_assume!(distinct(&workers));
        prop_assert_eq!(sorted(workers), sorted(shuffled));
    }
}
