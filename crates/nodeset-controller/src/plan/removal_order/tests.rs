use super::*;
use crate::plan::testing::{minute, pod};
use crate::worker::{Cause, Ready, Work};
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

/// The same workers in any order come out in this one.
fn assert_order(expected: &[(&str, Value)]) {
    let mut workers: Vec<_> = expected.iter().map(worker).collect();
    let names: Vec<_> = expected.iter().map(|(name, _)| (*name).to_owned()).collect();
    for turn in 0..workers.len() {
        workers.rotate_left(turn);
        workers.reverse();
        workers.sort_by(removal_order);
        assert_eq!(workers.iter().map(Worker::name).collect::<Vec<_>>(), names, "turned by {turn}");
    }
}

#[test]
fn the_less_a_worker_serves_the_sooner_it_goes() {
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
#[case::cheaper_goes_first(vec![
    ("a-0", annotated("pod-deletion-cost", "-10")),
    ("a-9", json!({})),
    ("a-2", annotated("pod-deletion-cost", "10")),
])]
#[case::a_cost_that_is_no_number_is_none(vec![
    ("a-1", annotated("pod-deletion-cost", "+5")),
    ("a-0", json!({})),
])]
#[case::idle_before_busy_and_then_who_is_done_sooner(vec![
    ("a-0", json!({})),
    ("a-1", annotated("pod-deadline", "2030-01-01T10:00:00Z")),
    ("a-2", annotated("pod-deadline", "2030-01-01T11:00:00Z")),
    ("a-3", annotated("pod-deadline", "2030-01-01T14:00:00+02:00")),
])]
#[case::highest_ordinal_goes_first_by_number(vec![
    ("a-10", json!({})),
    ("a-9", json!({})),
    ("a-0", json!({})),
    ("a-x", json!({})),
])]
#[case::among_the_cordoned_the_highest_ordinal(vec![
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
#[case::who_has_ended_goes_like_who_has_not_begun(vec![
    ("a-9", phase("Failed")),
    ("a-8", phase("Pending")),
    ("a-7", phase("Succeeded")),
    ("a-10", phase("Running")),
])]
#[case::newer_goes_first_and_unknown_age_is_new(vec![
    ("no-time", json!({ "metadata": { "creationTimestamp": null } })),
    ("newer", json!({ "metadata": { "creationTimestamp": minute(5) } })),
    ("older", json!({ "metadata": { "creationTimestamp": minute(4) } })),
])]
#[case::names_decide_when_nothing_else_does(vec![("x", json!({})), ("y", json!({})), ("z", json!({}))])]
fn first_difference_decides(#[case] expected: Vec<(&str, Value)>) {
    assert_order(&expected);
}

/// Whoever is on its way out already counts before anybody else is asked to go, however costly it is.
#[test]
fn who_is_leaving_anyway_goes_first() {
    let mut leaving = annotated("pod-deletion-cost", "1000");
    leaving["metadata"]["deletionTimestamp"] = json!(minute(0));
    assert_order(&[("a-0", leaving), ("a-1", phase("Pending")), ("a-2", json!({}))]);
}

prop_compose! {
    /// Few values each, so that many workers are equal in most of them.
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
            work: if deadline > 0 { Work::Until(minute(deadline)) } else { Work::Nothing },
            cordon: [Cordon::None, Cordon::Person, Cordon::Ours(Cause::Update)][cordon],
            ordinal: (ordinal >= 0).then_some(ordinal),
            created: (created > 0).then(|| minute(created)),
            ..Worker::new(pod(&format!("p{name}"), &metadata))
        }
    }
}

proptest! {
    #[test]
    fn the_order_is_total(one in any_worker(), two in any_worker(), three in any_worker()) {
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
    fn the_order_of_the_input_does_not_matter(
        (workers, shuffled) in prop::collection::vec(any_worker(), 0..12)
            .prop_flat_map(|workers| (Just(workers.clone()), Just(workers).prop_shuffle()))
    ) {
        let sorted = |mut workers: Vec<Worker>| {
            workers.sort_by(removal_order);
            workers.into_iter().map(|worker| format!("{worker:?}")).collect::<Vec<_>>()
        };
        // Two versions of one pod never meet; those of equal rank may trade places.
        let distinct = |workers: &[Worker]| {
            workers.iter().enumerate().all(|(at, one)| workers[..at].iter().all(|other| !removal_order(one, other).is_eq()))
        };
        prop_assume!(distinct(&workers));
        prop_assert_eq!(sorted(workers), sorted(shuffled));
    }
}
