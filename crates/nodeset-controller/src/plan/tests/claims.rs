//! Claims of removed workers: only scale-in deletes them.

use crate::plan::fixture::Fixture;
use crate::plan::testing::merge;
use crate::plan::{Effect, testing::minute};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use rstest::rstest;
use serde_json::{Value, json};

/// This worker with a claim, and a policy that deletes claims on scale-in.
fn fixture(replicas: usize, worker: &Value, owners: &Value) -> Fixture {
    let mut fixture = Fixture::new(&json!({
        "replicas": replicas,
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Retain" },
    }))
    .worker("gpu-0", worker)
    .slurm("gpu-0", &["IDLE"], "");
    let claim = json!({ "metadata": { "name": "data-gpu-0", "uid": "c", "resourceVersion": "5", "ownerReferences": owners } });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    fixture.observed.claims.insert("data-gpu-0".to_owned(), claim.into());
    fixture
}

/// The new owners of the claim, if they change.
fn owners(fixture: &Fixture) -> Option<Vec<String>> {
    fixture.plan().effects.iter().find_map(|effect| {
        let Effect::SetClaimOwners { owners, .. } = effect else { return None };
        Some(owners.iter().map(|owner| format!("{} {}", owner.kind, owner.uid)).collect())
    })
}

fn marked(by: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": {
        "nodeset.slinky.slurm.net/pod-cordon": "true", "nodeset.slinky.slurm.net/pod-cordon-by": by } } })
}

fn old(change: &Value) -> Value {
    let mut old = json!({ "metadata": { "labels": { "controller.kubernetes.io/hash": "old" } } });
    merge(&mut old, change);
    old
}

#[rstest]
#[case::surplus(fixture(0, &json!({}), &json!([])), true)]
#[case::surplus_and_marked(fixture(0, &marked(Some("scale-in")), &json!([])), true)]
#[case::kept(fixture(1, &json!({}), &json!([])), false)]
#[case::outdated(fixture(1, &old(&json!({})), &json!([])), false)]
#[case::outdated_and_marked(fixture(1, &old(&marked(Some("update"))), &json!([])), false)]
#[case::on_a_cordoned_node(
    fixture(1, &json!({}), &json!([])).host("node-a", &json!({ "spec": { "unschedulable": true } })), false
)]
#[case::cordoned_by_a_person(fixture(1, &marked(None), &json!([])), false)]
#[case::failed(fixture(1, &json!({ "status": { "phase": "Failed" } }), &json!([])), false)]
#[case::unregistered(fixture(1, &json!({}), &json!([])).without_slurm_node("gpu-0"), false)]
#[case::of_a_deleted_nodeset(
    fixture(1, &json!({}), &json!([])).nodeset(|nodeset| nodeset.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(minute(0)))), false
)]
fn only_surplus_workers_own_their_claims(#[case] fixture: Fixture, #[case] expected: bool) {
    assert_eq!(
        owners(&fixture),
        expected.then(|| vec!["Pod uid-gpu-0".to_owned()]),
        "{:?}",
        fixture.effects()
    );
}

#[test]
fn kept_worker_no_longer_owns_its_claims() {
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "gpu-0", "uid": "uid-gpu-0", "controller": true,
        "blockOwnerDeletion": true }]);
    assert_eq!(owners(&fixture(1, &marked(Some("scale-in")), &owner)), Some(vec![]));
    assert_eq!(owners(&fixture(0, &marked(Some("scale-in")), &owner)), None, "the pod owns it already");
}
