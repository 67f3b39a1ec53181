use super::*;
use crate::plan::fixture::Fixture;
use crate::plan::testing::{minute, pod};
use rstest::rstest;
use serde_json::{Value, json};

fn nodeset(when_scaled: &str, when_deleted: &str) -> NodeSet {
    serde_json::from_value(json!({
        "metadata": { "name": "foo", "namespace": "ns", "uid": "u-foo" },
        "spec": {
            "controllerRef": { "name": "slurm" },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" } }, { "metadata": { "name": "cache" } }],
            "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled, "whenDeleted": when_deleted },
        },
    }))
    .unwrap()
}

fn owner(kind: &str, name: &str, uid: &str, controller: Option<bool>) -> Value {
    let api_version = match kind {
        "NodeSet" => "slinky.slurm.net/v1beta1",
        "Pod" => "v1",
        _ => "example.com/v1",
    };
    let mut owner = json!({
        "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true,
    });
    if let Some(controller) = controller {
        owner["controller"] = json!(controller);
    }
    owner
}

fn of_nodeset() -> Value {
    owner("NodeSet", "foo", "u-foo", Some(true))
}

fn of_pod() -> Value {
    owner("Pod", "foo-0", "uid-foo-0", Some(true))
}

fn of_stranger(controller: Option<bool>) -> Value {
    owner("Backup", "nightly", "u-b", controller)
}

fn decided(policy: (&str, &str), owners: &[Value], leaving: bool) -> ClaimOwners {
    let claim = json!({ "metadata": { "name": "data-foo-0", "ownerReferences": owners } });
    let worker = Worker::new(pod("foo-0", &json!({})));
    claim_owners(&serde_json::from_value(claim).unwrap(), &nodeset(policy.0, policy.1), &worker, leaving)
}

fn references(owners: &[Value]) -> Vec<OwnerReference> {
    owners.iter().map(|owner| serde_json::from_value(owner.clone()).unwrap()).collect()
}

#[rstest]
#[case::retained_while_it_stays(("Retain", "Retain"), false, vec![])]
#[case::retained_when_it_leaves(("Retain", "Retain"), true, vec![])]
#[case::goes_with_the_nodeset(("Retain", "Delete"), false, vec![of_nodeset()])]
#[case::goes_with_the_nodeset_only(("Retain", "Delete"), true, vec![of_nodeset()])]
#[case::goes_with_the_pod_but_not_while_it_stays(("Delete", "Retain"), false, vec![])]
#[case::goes_with_the_pod(("Delete", "Retain"), true, vec![of_pod()])]
#[case::goes_with_either_while_it_stays(("Delete", "Delete"), false, vec![of_nodeset()])]
#[case::goes_with_either_when_it_leaves(("Delete", "Delete"), true, vec![of_pod()])]
fn the_policy_says_with_whom_a_claim_goes(
    #[case] policy: (&str, &str),
    #[case] leaving: bool,
    #[case] wanted: Vec<Value>,
    #[values(vec![], vec![of_nodeset()], vec![of_pod()], vec![of_nodeset(), of_pod()])] present: Vec<Value>,
) {
    let expected = (present != wanted).then(|| references(&wanted));
    assert_eq!(decided(policy, &present, leaving), ClaimOwners { change: expected, is_contested: false });
}

/// A mark for an update, for a cordoned Kubernetes node or by a person is no reason to lose data.
#[rstest]
#[case(Some("update"))]
#[case(Some("node"))]
#[case(None)]
fn a_cordoned_pod_keeps_its_claims(#[case] by: Option<&str>) {
    let annotations = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by,
    } } });
    let claim = serde_json::from_value(json!({ "metadata": { "name": "data-foo-0" } })).unwrap();
    let worker = Worker::new(pod("foo-0", &annotations));
    let owners = claim_owners(&claim, &nodeset("Delete", "Delete"), &worker, false);
    assert_eq!(owners.change, Some(references(&[of_nodeset()])));
}

#[rstest]
#[case::without_controller(owner("NodeSet", "foo", "u-foo", None))]
#[case::with_controller_false(owner("NodeSet", "foo", "u-foo", Some(false)))]
fn an_owner_that_does_not_control_is_written_anew(#[case] present: Value) {
    let owners = decided(("Retain", "Delete"), &[present, of_stranger(None)], false);
    assert_eq!(owners.change, Some(references(&[of_stranger(None), of_nodeset()])));
}

#[rstest]
#[case::nodeset(owner("NodeSet", "foo", "u-before", Some(true)))]
#[case::nodeset_without_controller(owner("NodeSet", "foo", "u-before", None))]
#[case::pod(owner("Pod", "foo-0", "uid-before", Some(true)))]
fn a_claim_of_a_predecessor_is_left_to_go(
    #[case] present: Value,
    #[values(("Retain", "Retain"), ("Delete", "Delete"))] policy: (&str, &str),
    #[values(true, false)] leaving: bool,
) {
    assert_eq!(decided(policy, &[present, of_nodeset()], leaving), ClaimOwners::default());
}

#[rstest]
#[case::alone(vec![of_stranger(Some(true))], None)]
#[case::with_ours(vec![of_nodeset(), of_stranger(Some(true)), of_pod()], Some(vec![of_stranger(Some(true))]))]
fn a_claim_of_somebody_else_is_not_ours_too(
    #[case] present: Vec<Value>,
    #[case] expected: Option<Vec<Value>>,
    #[values(("Retain", "Delete"), ("Delete", "Retain"), ("Delete", "Delete"))] policy: (&str, &str),
    #[values(true, false)] leaving: bool,
) {
    let change = expected.map(|owners| references(&owners));
    assert_eq!(decided(policy, &present, leaving), ClaimOwners { change, is_contested: true });
}

#[test]
fn whoever_controls_a_claim_that_is_retained_may() {
    assert_eq!(decided(("Retain", "Retain"), &[of_stranger(Some(true))], true), ClaimOwners::default());
}

#[test]
fn owners_that_do_not_control_stay_beside_ours() {
    let owners = decided(("Retain", "Delete"), &[of_stranger(None)], false);
    let expected = Some(references(&[of_stranger(None), of_nodeset()]));
    assert_eq!(owners, ClaimOwners { change: expected, is_contested: false });
}

#[test]
fn an_owner_of_an_older_api_version_is_the_same_by_its_uid() {
    let mut old = of_nodeset();
    old["apiVersion"] = json!("slinky.slurm.net/v1alpha1");
    assert_eq!(decided(("Retain", "Delete"), &[old], false), ClaimOwners::default());
}

#[test]
fn a_nodeset_that_was_never_stored_owns_nothing() {
    let claim = serde_json::from_value(json!({ "metadata": { "name": "data-foo-0" } })).unwrap();
    let mut nodeset = nodeset("Delete", "Delete");
    nodeset.metadata.uid = None;
    let worker = Worker::new(pod("foo-0", &json!({})));
    assert_eq!(claim_owners(&claim, &nodeset, &worker, true), ClaimOwners::default());
}

#[rstest]
#[case::numbered("foo-0", json!({}), &["data-foo-0", "cache-foo-0"])]
#[case::padded_when_it_was_made("foo-007", json!({}), &["data-foo-007", "cache-foo-007"])]
#[case::by_hostname("foo-x7", json!({ "metadata": { "labels": {
    "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet", "nodeset.slinky.slurm.net/pod-hostname": "node-1",
} } }), &["data-foo-node-1", "cache-foo-node-1"])]
#[case::without_hostname("foo-x7", json!({ "metadata": { "labels": {
    "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet",
} } }), &[])]
fn a_pod_knows_its_claims(#[case] name: &str, #[case] change: Value, #[case] expected: &[&str]) {
    let templates = ["data".to_owned(), "cache".to_owned()];
    let worker = Worker::new(pod(name, &change));
    assert_eq!(claims_of(&nodeset("Retain", "Retain"), &templates, &worker), expected);
}

/// What is written for a NodeSet `gpu` with these workers and a claim `data-gpu-<part>`, if those named `leaving` go.
fn written(part: &str, nodeset: &Value, workers: &[(&str, Value)], leaving: &[&str]) -> Vec<Effect> {
    let mut fixture = Fixture::new(&json!({
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Retain" },
    }));
    if let Some(deleted) = nodeset.get("deletionTimestamp") {
        fixture = fixture.nodeset(|nodeset| {
            nodeset.metadata.deletion_timestamp = serde_json::from_value(deleted.clone()).unwrap();
        });
    }
    let claim = json!({ "metadata": { "name": format!("data-gpu-{part}"), "uid": "u-claim", "resourceVersion": "5" } });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    fixture.observed.claims.insert(claim.name_any(), claim.into());
    let workers: Vec<_> = workers.iter().map(|(name, change)| Worker::new(pod(name, change))).collect();
    owns(&fixture.observed, &workers, |worker| leaving.contains(&worker.name().as_str()))
}

fn on_node(hostname: &str) -> Value {
    json!({ "metadata": { "labels": {
        "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet", "nodeset.slinky.slurm.net/pod-hostname": hostname,
    } } })
}

#[test]
fn a_claim_is_given_to_the_pod_that_takes_it_along() {
    let owner = owner("Pod", "gpu-3", "uid-gpu-3", Some(true));
    let expected = Effect::SetClaimOwners {
        claim: "data-gpu-3".to_owned(),
        uid: "u-claim".to_owned(),
        version: "5".to_owned(),
        owners: references(&[owner]),
    };
    assert_eq!(written("3", &json!({}), &[("gpu-3", json!({}))], &["gpu-3"]), [expected]);
}

#[rstest]
#[case::it_stays("3", json!({}), vec![("gpu-3", json!({}))], &[])]
#[case::another_one_leaves("3", json!({}), vec![("gpu-3", json!({})), ("gpu-4", json!({}))], &["gpu-4"])]
#[case::the_nodeset_is_deleted("3", json!({ "deletionTimestamp": minute(0) }), vec![("gpu-3", json!({}))], &["gpu-3"])]
#[case::decided_before_it_began_to_end(
    "3", json!({}), vec![("gpu-3", json!({ "metadata": { "deletionTimestamp": minute(0) } }))], &["gpu-3"]
)]
#[case::the_other_pod_of_its_node_stays("n1", json!({}), vec![("gpu-a", on_node("n1")), ("gpu-b", on_node("n1"))], &["gpu-a"])]
#[case::the_other_pod_of_its_node_stays_too("n1", json!({}), vec![("gpu-a", on_node("n1")), ("gpu-b", on_node("n1"))], &["gpu-b"])]
fn nothing_is_written_when(
    #[case] part: &str,
    #[case] nodeset: Value,
    #[case] workers: Vec<(&str, Value)>,
    #[case] leaving: &[&str],
) {
    assert_eq!(written(part, &nodeset, &workers, leaving), []);
}

/// Whether the pod `gpu-<part>` takes its claim along when the NodeSet is `change`d.
fn takes_its_claim(part: &str, change: &Value, worker: &Value) -> bool {
    let mut spec = json!({
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Retain" },
    });
    crate::plan::testing::merge(&mut spec, change);
    let mut fixture = Fixture::new(&spec).worker(&format!("gpu-{part}"), worker);
    let claim = json!({ "metadata": { "name": format!("data-gpu-{part}"), "uid": "u-claim" } });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    fixture.observed.claims.insert(claim.name_any(), claim.into());
    let effects = fixture.effects();
    assert!(effects.iter().any(|effect| effect.starts_with("delete")), "{effects:?}");
    effects.contains(&format!("own data-gpu-{part}"))
}

#[rstest]
#[case::made_smaller("0", json!({ "replicas": 0 }), json!({}), true)]
#[case::of_another_mode("n1", json!({ "replicas": 1 }), on_node("n1"), false)]
#[case::of_the_numbered_mode("0", json!({ "scalingMode": "DaemonSet" }), json!({}), false)]
#[case::on_a_node_that_does_not_fit(
    "node-a",
    json!({ "scalingMode": "DaemonSet", "template": { "spec": { "nodeSelector": { "a": "b" } } } }),
    on_node("node-a"),
    false
)]
fn only_a_nodeset_that_is_made_smaller_loses_claims(
    #[case] part: &str,
    #[case] change: Value,
    #[case] mut worker: Value,
    #[case] expected: bool,
) {
    let never_started =
        json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    crate::plan::testing::merge(&mut worker, &never_started);
    assert_eq!(takes_its_claim(part, &change, &worker), expected);
}

#[test]
fn claims_of_somebody_else_are_told() {
    let mut fixture = Fixture::new(&json!({
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Retain", "whenDeleted": "Delete" },
    }));
    for (name, owners) in [("data-gpu-0", vec![of_stranger(Some(true))]), ("data-gpu-1", vec![])] {
        let claim = json!({ "metadata": { "name": name, "ownerReferences": owners } });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        fixture.observed.claims.insert(name.to_owned(), claim.into());
    }
    let workers = ["gpu-0", "gpu-1"].map(|name| Worker::new(pod(name, &json!({}))));
    assert_eq!(contested(&fixture.observed, &workers), ["data-gpu-0"]);
}
