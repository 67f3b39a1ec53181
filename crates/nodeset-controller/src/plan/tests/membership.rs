//! Ownership and adoption of pods.

use crate::plan::fixture::Fixture;
use crate::plan::{DeletionWait, Effect};
use rstest::rstest;
use serde_json::{Value, json};
use slinky_api::ownership::controller_reference;
use std::sync::Arc;

/// How a NodeSet `gpu` treats this pod.
fn classify(fixture: Fixture, name: &str, change: &Value) -> &'static str {
    let fixture = fixture.worker(name, change);
    let (plan, effects) = (fixture.plan(), fixture.effects());
    let has_effect = |verb: &str| effects.contains(&format!("{verb} {name}"));
    match (plan.workers.is_empty(), has_effect("adopt"), has_effect("release")) {
        (false, false, false) => "ours",
        (false, true, false) => "adopted",
        (true, false, true) => "released",
        (true, false, false) => "ignored",
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
#[case::controlled("gpu-0", json!({}), "ours")]
#[case::controlled_with_another_name("odd", json!({}), "ours")]
#[case::controlled_without_selector_labels("gpu-0", unlabelled(), "released")]
#[case::orphan("gpu-0", orphan(&json!({})), "adopted")]
#[case::padded_orphan("gpu-007", orphan(&json!({})), "adopted")]
#[case::terminating_orphan("gpu-0", orphan(&json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } })), "ignored")]
#[case::orphan_without_selector_labels("gpu-0", orphan(&unlabelled()), "ignored")]
#[case::orphan_without_ordinal("gpu-x", orphan(&json!({})), "ignored")]
#[case::orphan_of_a_sibling("gpu-big-1234", orphan(&json!({})), "ignored")]
#[case::controlled_by_a_sibling("gpu-big-1234", owned_by("gpu-big", "v", Some(true)), "ignored")]
#[case::controlled_by_a_predecessor("gpu-0", owned_by("gpu", "older", Some(true)), "ignored")]
#[case::owned_but_not_controlled("odd", owned_by("gpu", "u", Some(false)), "ignored")]
#[case::owned_but_not_controlled_with_our_name("gpu-0", owned_by("gpu", "u", Some(false)), "adopted")]
fn statefulset_mode_selects_pods_by_owner_labels_and_ordinal(
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    assert_eq!(classify(Fixture::new(&json!({ "replicas": 1 })), name, &change), expected);
}

fn generated(prefix: Option<&str>) -> Value {
    orphan(&json!({ "metadata": { "generateName": prefix,
        "labels": { "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet" } } }))
}

#[rstest]
#[case::generated_for_it("gpu-x7k2p", generated(Some("gpu-")), "adopted")]
#[case::generated_for_it_with_another_name("other", generated(Some("gpu-")), "adopted")]
#[case::generated_for_a_sibling("gpu-big-x7k2p", generated(Some("gpu-big-")), "ignored")]
#[case::not_generated("gpu-0", generated(None), "ignored")]
#[case::controlled_by_a_predecessor("gpu-x7k2p", owned_by("gpu", "older", Some(true)), "ignored")]
fn daemonset_mode_selects_pods_by_owner_labels_and_generate_name(
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &str,
) {
    assert_eq!(classify(Fixture::new(&json!({ "scalingMode": "DaemonSet" })), name, &change), expected);
}

/// A pod that the garbage collector took from a NodeSet: the Controller still owns it.
fn retained() -> Value {
    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "Controller",
        "name": "slurm", "uid": "cluster" }] } })
}

fn deleting(finalizers: &[&str]) -> Fixture {
    Fixture::new(&json!({ "replicas": 1 })).nodeset(|nodeset| {
        nodeset.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
        nodeset
            .metadata
            .finalizers
            .get_or_insert_default()
            .extend(finalizers.iter().map(|name| (*name).to_owned()));
    })
}

#[test]
fn controller_of_the_cluster_becomes_an_owner_of_workers() {
    let fixture = Fixture::new(&json!({ "replicas": 1 }));
    let nodeset = fixture.observed.nodeset.clone();
    let alone = json!({ "metadata": { "ownerReferences": [controller_reference(nodeset.as_ref())] } });
    let owned = fixture.worker("gpu-0", &alone);
    let plan = owned.plan();
    let Some(Effect::AdoptPod { owners, .. }) = plan.effects.first() else { panic!("{:?}", plan.effects) };
    let kinds: Vec<_> = owners.iter().map(|owner| (owner.kind.as_str(), owner.controller)).collect();
    assert_eq!(kinds, [("NodeSet", Some(true)), ("Controller", None)]);
    let complete = json!({ "metadata": { "ownerReferences": owners } });
    assert!(owned.worker("gpu-0", &complete).slurm("gpu-0", &["IDLE"], "").effects().is_empty());
}

#[test]
fn workers_that_a_foreground_deletion_took_from_the_nodeset_are_drained() {
    let fixture =
        deleting(&["foregroundDeletion"]).worker("gpu-0", &retained()).slurm("gpu-0", &["MIXED"], "");
    assert!(fixture.effects()[0].starts_with("mark gpu-0 for scale-in and drain"), "{:?}", fixture.effects());
    assert_eq!(fixture.plan().deletion, Some(DeletionWait::Workers(1)));
}

#[test]
fn orphaning_deletion_touches_no_worker() {
    // First the finalizer shows it, then the revisions.
    let fixture = deleting(&["orphan"]).worker("gpu-0", &json!({})).slurm("gpu-0", &["IDLE"], "");
    assert_eq!(fixture.effects(), [r#"set finalizers ["orphan"]"#]);
    let mut orphaned = deleting(&[]).worker("gpu-0", &retained()).slurm("gpu-0", &["IDLE"], "");
    let labels = slinky_api::labels::selector_labels(orphaned.observed.nodeset.as_ref());
    let revision = json!({ "metadata": { "name": "gpu-1", "labels": labels }, "revision": 1 });
    orphaned.observed.revisions = vec![Arc::new(serde_json::from_value(revision).unwrap())];
    let plan = orphaned.plan();
    assert_eq!(orphaned.effects(), ["set finalizers []"]);
    assert!(plan.pod_mirrors.is_empty() && plan.node_mirrors.is_empty());
}

#[test]
fn deleted_nodeset_adopts_no_pods() {
    let deleting = Fixture::new(&json!({ "replicas": 1 })).nodeset(|nodeset| {
        nodeset.metadata.deletion_timestamp = serde_json::from_value(json!("2027-01-15T08:00:00Z")).unwrap();
    });
    assert_eq!(classify(deleting, "gpu-0", &orphan(&json!({}))), "ignored");
}
