//! Whose pods are whose.

use crate::plan::fixture::Fixture;
use rstest::rstest;
use serde_json::{Value, json};

/// What a NodeSet `gpu` makes of a pod like this.
fn made_of(fixture: Fixture, name: &str, change: &Value) -> &'static str {
    let fixture = fixture.worker(name, change);
    let (plan, effects) = (fixture.plan(), fixture.effects());
    let done = |what: &str| effects.contains(&format!("{what} {name}"));
    match (plan.workers.is_empty(), done("adopt"), done("disown")) {
        (false, false, false) => "its own",
        (false, true, false) => "adopted",
        (true, false, true) => "given up",
        (true, false, false) => "nobody",
        other => panic!("{other:?}: {effects:?}"),
    }
}

fn orphan(change: &Value) -> Value {
    let mut orphan = change.clone();
    orphan["metadata"]["ownerReferences"] = Value::Null;
    orphan
}

fn owned_by(name: &str, uid: &str, controller: Option<bool>) -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet",
        "name": name, "uid": uid, "controller": controller }] } })
}

fn unlabelled() -> Value {
    json!({ "metadata": { "labels": { "app.kubernetes.io/name": null, "app.kubernetes.io/instance": null } } })
}

#[rstest]
#[case::as_it_made_it("gpu-0", json!({}), "its own")]
#[case::that_it_controls_whatever_its_name("odd", json!({}), "its own")]
#[case::that_it_controls_without_its_labels("gpu-0", unlabelled(), "given up")]
#[case::of_nobody("gpu-0", orphan(&json!({})), "adopted")]
#[case::of_nobody_and_padded("gpu-007", orphan(&json!({})), "adopted")]
#[case::of_nobody_and_ending("gpu-0", orphan(&json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } })), "nobody")]
#[case::of_nobody_without_its_labels("gpu-0", orphan(&unlabelled()), "nobody")]
#[case::of_nobody_without_number("gpu-x", orphan(&json!({})), "nobody")]
#[case::of_nobody_named_like_a_sibling("gpu-big-1234", orphan(&json!({})), "nobody")]
#[case::of_a_sibling("gpu-big-1234", owned_by("gpu-big", "v", Some(true)), "nobody")]
#[case::of_its_predecessor("gpu-0", owned_by("gpu", "older", Some(true)), "nobody")]
#[case::that_it_owns_and_does_not_control("odd", owned_by("gpu", "u", Some(false)), "nobody")]
#[case::that_it_owns_and_does_not_control_with_its_name(
    "gpu-0",
    owned_by("gpu", "u", Some(false)),
    "adopted"
)]
fn a_nodeset_with_numbers_takes_a_pod(#[case] name: &str, #[case] change: Value, #[case] expected: &str) {
    assert_eq!(made_of(Fixture::new(&json!({ "replicas": 1 })), name, &change), expected);
}

fn generated(prefix: Option<&str>) -> Value {
    orphan(&json!({ "metadata": { "generateName": prefix,
        "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet" } } }))
}

#[rstest]
#[case::made_for_it("gpu-x7k2p", generated(Some("gpu-")), "adopted")]
#[case::made_for_it_by_another_name("other", generated(Some("gpu-")), "adopted")]
#[case::made_for_a_sibling("gpu-big-x7k2p", generated(Some("gpu-big-")), "nobody")]
#[case::not_generated("gpu-0", generated(None), "nobody")]
#[case::of_its_predecessor("gpu-x7k2p", owned_by("gpu", "older", Some(true)), "nobody")]
fn a_nodeset_with_a_worker_on_each_node_takes_a_pod(
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    assert_eq!(made_of(Fixture::new(&json!({ "scalingMode": "DaemonSet" })), name, &change), expected);
}

#[test]
fn a_nodeset_that_goes_takes_nobody_in() {
    let going = Fixture::new(&json!({ "replicas": 1 })).nodeset(|nodeset| {
        nodeset.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
    });
    assert_eq!(made_of(going, "gpu-0", &orphan(&json!({}))), "nobody");
}
