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

/// A worker at ordinal 1 with a claim, next to this one at ordinal 0.
fn second_worker(replicas: usize, when_scaled: &str, worker: &Value, owners: &Value) -> Fixture {
    let mut fixture = Fixture::new(&json!({
        "replicas": replicas,
        "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled, "whenDeleted": "Retain" },
    }))
    .workers(1)
    .worker("gpu-1", worker)
    .slurm("gpu-1", &["IDLE"], "");
    let claim = json!({ "metadata": { "name": "data-gpu-1", "uid": "c", "ownerReferences": owners } });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    fixture.observed.claims.insert("data-gpu-1".to_owned(), claim.into());
    fixture
}

fn pod_owner() -> Value {
    json!([{ "apiVersion": "v1", "kind": "Pod", "name": "gpu-1", "uid": "uid-gpu-1", "controller": true,
        "blockOwnerDeletion": true }])
}

#[rstest]
#[case::failed(json!({ "status": { "phase": "Failed" } }))]
#[case::succeeded(json!({ "status": { "phase": "Succeeded" } }))]
#[case::terminating(json!({ "metadata": { "deletionTimestamp": minute(1) } }))]
fn claims_of_a_worker_that_is_gone_anyway_follow_the_scale_in(#[case] worker: Value) {
    let pod = Some(vec!["Pod uid-gpu-1".to_owned()]);
    assert_eq!(owners(&second_worker(1, "Delete", &worker, &json!([]))), pod, "scaled in");
    assert_eq!(owners(&second_worker(2, "Delete", &worker, &json!([]))), None, "it is replaced");
    assert_eq!(owners(&second_worker(2, "Delete", &worker, &pod_owner())), Some(vec![]), "scaled out again");
    assert_eq!(owners(&second_worker(1, "Retain", &worker, &pod_owner())), Some(vec![]), "retained now");
    assert_eq!(owners(&second_worker(1, "Retain", &worker, &json!([]))), None);
}

/// The next worker gets the lowest free ordinal, so it does not use this claim; but an update deletes no data.
#[test]
fn replaced_worker_with_a_high_ordinal_keeps_its_claims() {
    let terminating = old(&json!({ "metadata": { "deletionTimestamp": minute(1) } }));
    let mut fixture = second_worker(2, "Delete", &json!({}), &json!([])).worker("gpu-7", &terminating);
    fixture.observed.pods.retain(|pod| pod.metadata.name.as_deref() != Some("gpu-1"));
    let mut claim = (*fixture.observed.claims.remove("data-gpu-1").unwrap()).clone();
    claim.metadata.name = Some("data-gpu-7".to_owned());
    fixture.observed.claims.insert("data-gpu-7".to_owned(), claim.into());
    assert_eq!(owners(&fixture), None, "{:?}", fixture.effects());
}

/// A batch is cut at its end: a delete must not be sent without the claim owners that it depends on.
#[test]
fn owners_of_claims_are_set_before_their_worker_is_deleted() {
    let drained = |fixture: Fixture, name: &str| {
        let mut fixture = fixture.worker(name, &marked(Some("scale-in"))).slurm(name, &["IDLE", "DRAIN"], "");
        let claim = json!({ "metadata": { "name": format!("data-{name}"), "uid": "c" } });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        fixture.observed.claims.insert(format!("data-{name}"), claim.into());
        fixture
    };
    let fixture = (0..4).fold(fixture(0, &json!({}), &json!([])), |fixture, ordinal| {
        drained(fixture, &format!("gpu-{ordinal}"))
    });
    let effects = fixture.effects();
    for name in ["gpu-0", "gpu-1", "gpu-2", "gpu-3"] {
        let at = |text: &str| effects.iter().position(|effect| effect.starts_with(text));
        let (claim, delete) = (at(&format!("set owners of data-{name}")), at(&format!("delete {name}")));
        assert!(claim.is_some() && claim < delete, "{effects:?}");
    }
}

#[test]
fn kept_worker_no_longer_owns_its_claims() {
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "gpu-0", "uid": "uid-gpu-0", "controller": true,
        "blockOwnerDeletion": true }]);
    assert_eq!(owners(&fixture(1, &marked(Some("scale-in")), &owner)), Some(vec![]));
    assert_eq!(owners(&fixture(0, &marked(Some("scale-in")), &owner)), None, "the pod owns it already");
}
