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

fn nodeset_owner() -> Value {
    owner("NodeSet", "foo", "u-foo", Some(true))
}

fn pod_owner() -> Value {
    owner("Pod", "foo-0", "uid-foo-0", Some(true))
}

fn foreign_owner(controller: Option<bool>) -> Value {
    owner("Backup", "nightly", "u-b", controller)
}

fn owners_of(policy: (&str, &str), owners: &[Value], leaving: bool) -> ClaimOwners {
    let claim = json!({ "metadata": { "name": "data-foo-0", "ownerReferences": owners } });
    let worker = Worker::new(pod("foo-0", &json!({})));
    claim_owners(&serde_json::from_value(claim).unwrap(), &nodeset(policy.0, policy.1), &worker, leaving)
}

fn references(owners: &[Value]) -> Vec<OwnerReference> {
    owners.iter().map(|owner| serde_json::from_value(owner.clone()).unwrap()).collect()
}

#[rstest]
#[case::retained_while_kept(("Retain", "Retain"), false, vec![])]
#[case::retained_when_leaving(("Retain", "Retain"), true, vec![])]
#[case::deleted_with_nodeset_while_kept(("Retain", "Delete"), false, vec![nodeset_owner()])]
#[case::deleted_with_nodeset_when_leaving(("Retain", "Delete"), true, vec![nodeset_owner()])]
#[case::deleted_on_scale_in_while_kept(("Delete", "Retain"), false, vec![])]
#[case::deleted_on_scale_in_when_leaving(("Delete", "Retain"), true, vec![pod_owner()])]
#[case::deleted_with_both_while_kept(("Delete", "Delete"), false, vec![nodeset_owner()])]
#[case::deleted_with_both_when_leaving(("Delete", "Delete"), true, vec![pod_owner()])]
fn retention_policy_decides_the_owner(
    #[case] policy: (&str, &str),
    #[case] leaving: bool,
    #[case] desired: Vec<Value>,
    #[values(vec![], vec![nodeset_owner()], vec![pod_owner()], vec![nodeset_owner(), pod_owner()])]
    present: Vec<Value>,
) {
    let expected = (present != desired).then(|| references(&desired));
    assert_eq!(owners_of(policy, &present, leaving), ClaimOwners { change: expected, is_contested: false });
}

/// A mark for an update or a cordoned Kubernetes node, or a cordon by a person, must not delete data.
#[rstest]
#[case(Some("update"))]
#[case(Some("node"))]
#[case(None)]
fn cordon_does_not_change_claim_owners(#[case] by: Option<&str>) {
    let annotations = json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by,
    } } });
    let claim = serde_json::from_value(json!({ "metadata": { "name": "data-foo-0" } })).unwrap();
    let worker = Worker::new(pod("foo-0", &annotations));
    let owners = claim_owners(&claim, &nodeset("Delete", "Delete"), &worker, false);
    assert_eq!(owners.change, Some(references(&[nodeset_owner()])));
}

#[rstest]
#[case::without_controller(owner("NodeSet", "foo", "u-foo", None))]
#[case::with_controller_false(owner("NodeSet", "foo", "u-foo", Some(false)))]
fn owner_without_controller_flag_is_rewritten(#[case] present: Value) {
    let owners = owners_of(("Retain", "Delete"), &[present, foreign_owner(None)], false);
    assert_eq!(owners.change, Some(references(&[foreign_owner(None), nodeset_owner()])));
}

#[rstest]
#[case::nodeset(owner("NodeSet", "foo", "u-before", Some(true)))]
#[case::nodeset_without_controller(owner("NodeSet", "foo", "u-before", None))]
#[case::pod(owner("Pod", "foo-0", "uid-before", Some(true)))]
fn claim_of_a_deleted_owner_is_not_changed(
    #[case] present: Value,
    #[values(("Retain", "Retain"), ("Delete", "Delete"))] policy: (&str, &str),
    #[values(true, false)] leaving: bool,
) {
    assert_eq!(owners_of(policy, &[present, nodeset_owner()], leaving), ClaimOwners::default());
}

#[rstest]
#[case::alone(vec![foreign_owner(Some(true))], None)]
#[case::with_ours(vec![nodeset_owner(), foreign_owner(Some(true)), pod_owner()], Some(vec![foreign_owner(Some(true))]))]
fn claim_with_foreign_controller_is_contested(
    #[case] present: Vec<Value>,
    #[case] expected: Option<Vec<Value>>,
    #[values(("Retain", "Delete"), ("Delete", "Retain"), ("Delete", "Delete"))] policy: (&str, &str),
    #[values(true, false)] leaving: bool,
) {
    let change = expected.map(|owners| references(&owners));
    assert_eq!(owners_of(policy, &present, leaving), ClaimOwners { change, is_contested: true });
}

#[test]
fn retained_claim_may_have_a_foreign_controller() {
    assert_eq!(owners_of(("Retain", "Retain"), &[foreign_owner(Some(true))], true), ClaimOwners::default());
}

#[test]
fn foreign_owners_without_controller_flag_stay() {
    let owners = owners_of(("Retain", "Delete"), &[foreign_owner(None)], false);
    let expected = Some(references(&[foreign_owner(None), nodeset_owner()]));
    assert_eq!(owners, ClaimOwners { change: expected, is_contested: false });
}

#[test]
fn owner_with_older_api_version_matches_by_uid() {
    let mut old = nodeset_owner();
    old["apiVersion"] = json!("slinky.slurm.net/v1alpha1");
    assert_eq!(owners_of(("Retain", "Delete"), &[old], false), ClaimOwners::default());
}

#[test]
fn nodeset_without_uid_owns_nothing() {
    let claim = serde_json::from_value(json!({ "metadata": { "name": "data-foo-0" } })).unwrap();
    let mut nodeset = nodeset("Delete", "Delete");
    nodeset.metadata.uid = None;
    let worker = Worker::new(pod("foo-0", &json!({})));
    assert_eq!(claim_owners(&claim, &nodeset, &worker, true), ClaimOwners::default());
}

#[rstest]
#[case::numbered("foo-0", json!({}), &["data-foo-0", "cache-foo-0"])]
#[case::padded_at_creation("foo-007", json!({}), &["data-foo-007", "cache-foo-007"])]
#[case::by_hostname("foo-x7", json!({ "metadata": { "labels": {
    "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet", "nodeset.slinky.slurm.net/pod-hostname": "node-1",
} } }), &["data-foo-node-1", "cache-foo-node-1"])]
#[case::without_hostname("foo-x7", json!({ "metadata": { "labels": {
    "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet",
} } }), &[])]
fn claim_names_follow_the_pod_name_or_hostname(
    #[case] name: &str,
    #[case] change: Value,
    #[case] expected: &[&str],
) {
    let templates = ["data".to_owned(), "cache".to_owned()];
    let worker = Worker::new(pod(name, &change));
    assert_eq!(claims_of(&nodeset("Retain", "Retain"), &templates, &worker), expected);
}

/// The effects for a NodeSet `gpu` with these workers and a claim `data-gpu-<part>`, if the workers named `leaving` are
/// removed.
fn owner_effects(part: &str, nodeset: &Value, workers: &[(&str, Value)], leaving: &[&str]) -> Vec<Effect> {
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
    decide(&fixture.observed, &workers, |worker| leaving.contains(&worker.name().as_str())).effects
}

fn on_node(hostname: &str) -> Value {
    json!({ "metadata": { "labels": {
        "nodeset.slinky.slurm.net/scaling-mode": "DaemonSet", "nodeset.slinky.slurm.net/pod-hostname": hostname,
    } } })
}

#[test]
fn leaving_pod_becomes_claim_owner() {
    let owner = owner("Pod", "gpu-3", "uid-gpu-3", Some(true));
    let expected = Effect::SetClaimOwners {
        claim: "data-gpu-3".to_owned(),
        uid: "u-claim".to_owned(),
        version: "5".to_owned(),
        owners: references(&[owner]),
        user: "uid-gpu-3".to_owned(),
    };
    assert_eq!(owner_effects("3", &json!({}), &[("gpu-3", json!({}))], &["gpu-3"]), [expected]);
}

#[rstest]
#[case::kept("3", json!({}), vec![("gpu-3", json!({}))], &[])]
#[case::another_pod_leaves("3", json!({}), vec![("gpu-3", json!({})), ("gpu-4", json!({}))], &["gpu-4"])]
#[case::nodeset_is_deleted("3", json!({ "deletionTimestamp": minute(0) }), vec![("gpu-3", json!({}))], &["gpu-3"])]
#[case::second_pod_of_its_node_stays("n1", json!({}), vec![("gpu-a", on_node("n1")), ("gpu-b", on_node("n1"))], &["gpu-a"])]
#[case::first_pod_of_its_node_stays("n1", json!({}), vec![("gpu-a", on_node("n1")), ("gpu-b", on_node("n1"))], &["gpu-b"])]
fn owners_are_not_changed_without_scale_in(
    #[case] part: &str,
    #[case] nodeset: Value,
    #[case] workers: Vec<(&str, Value)>,
    #[case] leaving: &[&str],
) {
    assert_eq!(owner_effects(part, &nodeset, &workers, leaving), []);
}

/// Whether the pod `gpu-<part>` becomes the owner of its claim when the NodeSet is `change`d.
fn owns_its_claim(part: &str, change: &Value, worker: &Value) -> bool {
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
    effects.contains(&format!("set owners of data-gpu-{part}"))
}

#[rstest]
#[case::scale_in("0", json!({ "replicas": 0 }), json!({}), true)]
#[case::daemon_in_statefulset_mode("n1", json!({ "replicas": 1 }), on_node("n1"), false)]
#[case::ordinal_in_daemonset_mode("0", json!({ "scalingMode": "DaemonSet" }), json!({}), false)]
#[case::unfit_node(
    "node-a",
    json!({ "scalingMode": "DaemonSet", "template": { "spec": { "nodeSelector": { "a": "b" } } } }),
    on_node("node-a"),
    false
)]
fn only_scale_in_deletes_claims(
    #[case] part: &str,
    #[case] change: Value,
    #[case] mut worker: Value,
    #[case] expected: bool,
) {
    let never_started =
        json!({ "status": { "phase": "Pending", "conditions": [], "containerStatuses": [] } });
    crate::plan::testing::merge(&mut worker, &never_started);
    assert_eq!(owns_its_claim(part, &change, &worker), expected);
}

#[test]
fn claims_with_foreign_controller_are_reported() {
    let mut fixture = Fixture::new(&json!({
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Retain", "whenDeleted": "Delete" },
    }));
    for (name, owners) in [("data-gpu-0", vec![foreign_owner(Some(true))]), ("data-gpu-1", vec![])] {
        let claim = json!({ "metadata": { "name": name, "ownerReferences": owners } });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        fixture.observed.claims.insert(name.to_owned(), claim.into());
    }
    let workers = ["gpu-0", "gpu-1"].map(|name| Worker::new(pod(name, &json!({}))));
    assert_eq!(decide(&fixture.observed, &workers, |_| false).contested, ["data-gpu-0"]);
}
