//! Finalizers of the NodeSet, adoption and release of pods, owners of PersistentVolumeClaims.

use super::*;
use rstest::rstest;

#[tokio::test(start_paused = true)]
async fn finalizers_are_not_removed_if_the_nodeset_changed_since_the_plan() {
    let mut fixture = Fixture::new(&[]).await;
    let remove_finalizers = || vec![Effect::SetFinalizers { finalizers: vec![] }];
    fixture.api.edit::<NodeSet>("ns", "gpu", |nodeset| nodeset["metadata"]["finalizers"] = json!(["keep"]));
    fixture.perform(remove_finalizers()).await;
    assert_eq!(fixture.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], json!(["keep"]));
    let live = Value::clone(&fixture.get::<NodeSet>("gpu").unwrap());
    fixture.nodeset = Arc::new(serde_json::from_value(live).unwrap());
    fixture.perform(remove_finalizers()).await;
    assert_eq!(fixture.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], Value::Null);
}

#[rstest]
#[case::forced(json!({ "nodeset.slinky.slurm.net/force-delete": "true" }), Value::Null)]
#[case::not_forced(json!({ "nodeset.slinky.slurm.net/force-delete": "false" }), json!(["keep"]))]
#[case::not_annotated(Value::Null, json!(["keep"]))]
#[tokio::test(start_paused = true)]
async fn finalizers_stay_until_the_reservation_is_deleted_unless_forced(
    #[case] annotations: Value,
    #[case] before_delete: Value,
) {
    let fixture = Fixture::new(&[]).await;
    let edited = fixture.api.edit::<NodeSet>("ns", "gpu", |nodeset| {
        nodeset["metadata"]["finalizers"] = json!(["keep"]);
        nodeset["metadata"]["annotations"] = annotations;
    });
    let fixture =
        Fixture { nodeset: Arc::new(serde_json::from_value(Value::clone(&edited)).unwrap()), ..fixture };
    let cleanup =
        || vec![Effect::DeleteReservation("maint".to_owned()), Effect::SetFinalizers { finalizers: vec![] }];
    fixture.slurm.inject_on(Method::DELETE, "reservation", Fault::Refused);
    let report = fixture.perform(cleanup()).await;
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(fixture.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], before_delete);
    fixture.slurm.recover();
    fixture.perform(cleanup()).await;
    assert_eq!(fixture.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], Value::Null);
}

fn adopt(fixture: &Fixture, pod: PodRef) -> Effect {
    Effect::AdoptPod { pod, owners: vec![serde_json::from_value(json!(fixture.owner())).unwrap()] }
}

#[tokio::test(start_paused = true)]
async fn orphan_is_adopted_and_release_keeps_other_owners() {
    let fixture = Fixture::new(&[]).await;
    let orphan = fixture.put_pod("w-0", &json!({ "metadata": { "ownerReferences": null } }));
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c" });
    let owners = json!({ "metadata": { "ownerReferences": [other, fixture.owner()] } });
    let released = fixture.put_pod("x", &owners);
    let report = fixture.perform(vec![adopt(&fixture, orphan), Effect::ReleasePod(released)]).await;
    assert_eq!(fixture.get::<Pod>("w-0").unwrap()["metadata"]["ownerReferences"], json!([fixture.owner()]));
    assert_eq!(fixture.get::<Pod>("x").unwrap()["metadata"]["ownerReferences"], json!([other]));
    assert_eq!((report.count(WriteKind::PodAdopted), report.count(WriteKind::PodReleased)), (1, 1));
}

#[rstest]
#[case::terminating(|fixture: &Fixture| drop(fixture.api.edit::<NodeSet>("ns", "gpu", |nodeset| {
    nodeset["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
})))]
#[case::deleted(|fixture: &Fixture| fixture.remove::<NodeSet>("gpu"))]
#[case::recreated(|fixture: &Fixture| {
    fixture.api.remove::<NodeSet>("ns", "gpu");
    let mut successor = fixture::nodeset(&json!({}));
    successor.metadata.uid = Some("new".to_owned());
    fixture.api.put::<NodeSet>(successor);
})]
#[tokio::test(start_paused = true)]
async fn deleted_or_terminating_nodeset_adopts_no_pod(#[case] change: fn(&Fixture)) {
    let fixture = Fixture::new(&[]).await;
    let orphan = fixture.put_pod("w-0", &json!({ "metadata": { "ownerReferences": null } }));
    change(&fixture);
    let report = fixture.perform(vec![adopt(&fixture, orphan)]).await;
    assert_eq!((fixture.writes(), report.failures), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn owners_are_not_set_on_a_claim_that_changed_since_the_plan() {
    let fixture = Fixture::new(&[]).await;
    let claims = ["data", "log"].map(|name| {
        let claim = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {} });
        reference(&fixture.api.put::<PersistentVolumeClaim>(claim))
    });
    fixture.api.edit::<PersistentVolumeClaim>("ns", "log", |claim| claim["spec"]["volumeName"] = json!("v"));
    let owner = slinky_api::ownership::controller_reference(&*fixture.nodeset).unwrap();
    let effects = claims.map(|PodRef { name: claim, uid, version }| Effect::SetClaimOwners {
        claim,
        uid,
        version,
        owners: vec![owner.clone()],
        user: String::new(),
    });
    let report = fixture.perform(effects.to_vec()).await;
    let owners = |name: &str| {
        fixture.get::<PersistentVolumeClaim>(name).unwrap()["metadata"]["ownerReferences"].clone()
    };
    assert_eq!((owners("data"), owners("log")), (json!([fixture.owner()]), Value::Null));
    assert_eq!((report.count(WriteKind::ClaimOwnersSet), report.failures), (1, vec![]));
}

/// The delete of a pod, and the owner by which a claim is garbage-collected with it, or by which it stays.
fn delete_with_claim(fixture: &Fixture, is_retained: bool) -> Vec<Effect> {
    let claim = json!({ "metadata": { "name": "data", "namespace": "ns" }, "spec": {} });
    let PodRef { name: claim, uid, version } = reference(&fixture.api.put::<PersistentVolumeClaim>(claim));
    let pod = fixture.put_marked_pod("w-0");
    let live: Pod = serde_json::from_value(Value::clone(&fixture.get::<Pod>("w-0").unwrap())).unwrap();
    let owners =
        slinky_api::ownership::controller_reference(&live).into_iter().filter(|_| !is_retained).collect();
    let user = pod.uid.clone();
    vec![delete(&pod, Evidence::NotNeeded), Effect::SetClaimOwners { claim, uid, version, owners, user }]
}

#[tokio::test(start_paused = true)]
async fn pod_owns_its_claim_before_it_is_deleted() {
    let fixture = Fixture::new(&[]).await;
    fixture.perform(delete_with_claim(&fixture, false)).await;
    assert_eq!(fixture.writes(), ["patch persistentvolumeclaims data", "delete pods w-0"]);
}

#[rstest]
#[case::claim_changed_since_the_plan(|fixture: &Fixture| {
    fixture.api.edit::<PersistentVolumeClaim>("ns", "data", |claim| claim["spec"]["volumeName"] = json!("v"));
}, 0)]
#[case::patch_fails(|fixture: &Fixture| fixture.on_api_request(|call| {
    if call.verb == Verb::Patch { Fate::Refused(Failure::InternalError) } else { Fate::Served }
}), 0)]
#[case::claim_deleted(|fixture: &Fixture| fixture.remove::<PersistentVolumeClaim>("data"), 1)]
#[tokio::test(start_paused = true)]
async fn pod_is_not_deleted_until_its_claims_have_their_owners(
    #[case] change: fn(&Fixture),
    #[case] deletes: usize,
    #[values(true, false)] is_retained: bool,
) {
    let fixture = Fixture::new(&[]).await;
    let effects = delete_with_claim(&fixture, is_retained);
    change(&fixture);
    let report = fixture.perform(effects).await;
    assert_eq!(count_with_prefix(&fixture.writes(), "delete pods"), deletes);
    assert_eq!(report.requeue_after.is_some(), deletes == 0);
}
