//! Finalizers, ownership, reservations, records; and how a plan is cut.

use super::*;
use crate::execute::ops;
use expectations::{OPS_PER_BATCH, Ops};
use rstest::rstest;
use slurm_rest::ReservationRequest;

#[tokio::test(start_paused = true)]
async fn a_nodeset_is_let_go_only_as_it_was_planned() {
    let mut world = World::new(&[]).await;
    let release = || vec![Effect::SetFinalizers { finalizers: vec![] }];
    world.api.edit::<NodeSet>("ns", "gpu", |nodeset| nodeset["metadata"]["finalizers"] = json!(["keep"]));
    world.perform(release()).await;
    assert_eq!(world.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], json!(["keep"]));
    let now = Value::clone(&world.get::<NodeSet>("gpu").unwrap());
    world.nodeset = Arc::new(serde_json::from_value(now).unwrap());
    world.perform(release()).await;
    assert_eq!(world.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], Value::Null);
}

#[rstest]
#[case::forced(json!({ "nodeset.slinky.slurm.net/force-delete": "true" }), Value::Null)]
#[case::not_forced(json!({ "nodeset.slinky.slurm.net/force-delete": "false" }), json!(["keep"]))]
#[case::not_said(Value::Null, json!(["keep"]))]
#[tokio::test(start_paused = true)]
async fn a_nodeset_is_let_go_once_its_reservation_is_gone(
    #[case] annotations: Value,
    #[case] meanwhile: Value,
) {
    let world = World::new(&[]).await;
    let held = world.api.edit::<NodeSet>("ns", "gpu", |nodeset| {
        nodeset["metadata"]["finalizers"] = json!(["keep"]);
        nodeset["metadata"]["annotations"] = annotations;
    });
    let world = World { nodeset: Arc::new(serde_json::from_value(Value::clone(&held)).unwrap()), ..world };
    let goodbye =
        || vec![Effect::DeleteReservation("maint".to_owned()), Effect::SetFinalizers { finalizers: vec![] }];
    world.slurm.inject_on(Method::DELETE, "reservation", Fault::Refused);
    let report = world.perform(goodbye()).await;
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(world.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], meanwhile);
    world.slurm.recover();
    world.perform(goodbye()).await;
    assert_eq!(world.get::<NodeSet>("gpu").unwrap()["metadata"]["finalizers"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn orphans_are_adopted_and_strangers_given_up() {
    let world = World::new(&[]).await;
    let orphan = world.pod("w-0", &json!({ "metadata": { "ownerReferences": null } }));
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c" });
    let owners = json!({ "metadata": { "ownerReferences": [other, world.owner()] } });
    let stranger = world.pod("x", &owners);
    let report = world.perform(vec![Effect::AdoptPod(orphan), Effect::ReleasePod(stranger)]).await;
    assert_eq!(world.get::<Pod>("w-0").unwrap()["metadata"]["ownerReferences"], json!([world.owner()]));
    assert_eq!(world.get::<Pod>("x").unwrap()["metadata"]["ownerReferences"], json!([other]));
    assert_eq!((report.count(WriteKind::PodAdopted), report.count(WriteKind::PodReleased)), (1, 1));
}

#[rstest]
#[case::ending(|world: &World| drop(world.api.edit::<NodeSet>("ns", "gpu", |nodeset| {
    nodeset["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
})))]
#[case::gone(|world: &World| world.forget::<NodeSet>("gpu"))]
#[case::made_anew(|world: &World| {
    world.api.remove::<NodeSet>("ns", "gpu");
    let mut successor = fixture::nodeset(&json!({}));
    successor.metadata.uid = Some("new".to_owned());
    world.api.put::<NodeSet>(successor);
})]
#[tokio::test(start_paused = true)]
async fn a_nodeset_that_does_not_stay_adopts_nothing(#[case] change: fn(&World)) {
    let world = World::new(&[]).await;
    let orphan = world.pod("w-0", &json!({ "metadata": { "ownerReferences": null } }));
    change(&world);
    let report = world.perform(vec![Effect::AdoptPod(orphan)]).await;
    assert_eq!((world.writes(), report.failures), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_claim_gets_its_owners_if_it_is_as_it_was() {
    let world = World::new(&[]).await;
    let claims = ["data", "log"].map(|name| {
        let claim = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": {} });
        reference(&world.api.put::<PersistentVolumeClaim>(claim))
    });
    world.api.edit::<PersistentVolumeClaim>("ns", "log", |claim| claim["spec"]["volumeName"] = json!("v"));
    let owner = slinky_api::ownership::controller_reference(&*world.nodeset).unwrap();
    let own = claims.map(|PodRef { name: claim, uid, version }| Effect::SetClaimOwners {
        claim,
        uid,
        version,
        owners: vec![owner.clone()],
    });
    let report = world.perform(own.to_vec()).await;
    let owners =
        |name: &str| world.get::<PersistentVolumeClaim>(name).unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!((owners("data"), owners("log")), (json!([world.owner()]), Value::Null));
    assert_eq!((report.count(WriteKind::ClaimOwnersSet), report.failures), (1, vec![]));
}

/// A claim that goes with a pod, and the delete of that pod.
fn gone_together(world: &World) -> Vec<Effect> {
    let claim = json!({ "metadata": { "name": "data", "namespace": "ns" }, "spec": {} });
    let PodRef { name: claim, uid, version } = reference(&world.api.put::<PersistentVolumeClaim>(claim));
    let pod = world.marked("w-0");
    let live: Pod = serde_json::from_value(Value::clone(&world.get::<Pod>("w-0").unwrap())).unwrap();
    let owners = slinky_api::ownership::controller_reference(&live).into_iter().collect();
    vec![delete(&pod, Evidence::NotNeeded), Effect::SetClaimOwners { claim, uid, version, owners }]
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_goes_with_a_pod_is_its_own_before_it_goes() {
    let world = World::new(&[]).await;
    world.perform(gone_together(&world)).await;
    assert_eq!(world.writes(), ["patch persistentvolumeclaims data", "delete pods w-0"]);
}

#[rstest]
#[case::changed_meanwhile(|world: &World| drop(world.api.edit::<PersistentVolumeClaim>("ns", "data", |claim| {
    claim["spec"]["volumeName"] = json!("v");
})), 0)]
#[case::failing(|world: &World| world.fate(|call| {
    if call.verb == Verb::Patch { Fate::Refused(Failure::InternalError) } else { Fate::Served }
}), 0)]
#[case::gone(|world: &World| world.forget::<PersistentVolumeClaim>("data"), 1)]
#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_claims_that_go_with_it(#[case] change: fn(&World), #[case] deletes: usize) {
    let world = World::new(&[]).await;
    let effects = gone_together(&world);
    change(&world);
    let report = world.perform(effects).await;
    assert_eq!(count(&world.writes(), "delete pods"), deletes);
    assert_eq!(report.requeue_after.is_some(), deletes == 0);
}

#[tokio::test(start_paused = true)]
async fn reservations_come_and_go_and_records_go_last() {
    let world = World::new(&["w-0", "w-1", "gone"]).await;
    world.abandon(&["gone"]).await;
    let request = reservation(Timestamp::from_second(1_900_000_000).unwrap());
    let forget = forget("gone");
    let nodes = Effect::SetReservationNodes { name: "maint".to_owned(), nodes: vec!["w-1".to_owned()] };
    let report = world.perform(vec![forget, Effect::PutReservation(Box::new(request)), nodes]).await;
    assert_eq!(world.writes(), ["POST reservation maint", "POST reservation maint", "DELETE node/gone"]);
    let list = world.slurm.client().list_reservations().await.unwrap();
    assert_eq!(list.get("maint").unwrap().node_list, "w-1");
    assert_eq!(
        (report.count(WriteKind::ReservationWritten), report.count(WriteKind::NodeRecordDeleted)),
        (2, 1)
    );
    assert_eq!(
        report.events()[0].note,
        "Deleted defunct Slurm node gone: backing Pod ns/gone-pod is gone and Kubernetes node host no longer maps to \
         its Slurm node"
    );
    world.perform(vec![Effect::DeleteReservation("maint".to_owned())]).await;
    assert_eq!(world.slurm.client().list_reservations().await.unwrap().reservations, []);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_a_reservation_holds_is_kept_and_that_is_said() {
    let world = World::new(&["w-0", "w-1"]).await;
    let start = (world.slurm.clock())() + seconds(30);
    world.slurm.client().put_reservation(&reservation(start)).await.unwrap();
    world.abandon(&["w-0", "w-1"]).await;
    let report = world.perform(["w-0", "w-1"].map(forget).to_vec()).await;
    assert_eq!(report.count(WriteKind::NodeRecordDeleted), 1);
    assert_eq!(
        (report.failures[0].object.as_str(), report.failures[0].category),
        ("Slurm node w-0", "rejected")
    );
}

#[rstest]
#[case::its_slurmd_is_back(|world: &World| world.slurm.start_slurmd("w-0"), "w-0 responds again, or belongs to another worker")]
#[case::its_pod_is_back(|world: &World| drop(world.pod("w-0-pod", &json!({}))), "Pod w-0-pod exists")]
#[case::slurm_is_silent(
    |world: &World| world.slurm.inject(Fault::Refused),
    "slurmrestd cannot be reached: no connection: connection refused"
)]
#[tokio::test(start_paused = true)]
async fn a_record_that_somebody_stands_behind_again_is_kept(
    #[case] change: fn(&World),
    #[case] awaited: &str,
) {
    let world = World::new(&["w-0"]).await;
    world.abandon(&["w-0"]).await;
    change(&world);
    let report = world.perform(vec![forget("w-0")]).await;
    assert_eq!(world.writes(), Vec::<String>::new());
    assert_eq!((report.count(WriteKind::NodeRecordDeleted), report.requeue_after), (0, Some(seconds(5))));
    assert_eq!(report.waits, [format!("the record of Slurm node w-0 stays: {awaited}")]);
}

#[rstest]
#[case::another_nodeset(json!({ "nodeSetUID": "older" }))]
#[case::another_pod(json!({ "podName": "other" }))]
#[case::another_host(json!({ "node": "other" }))]
#[tokio::test(start_paused = true)]
async fn a_record_that_says_something_else_by_now_is_kept(#[case] change: Value) {
    let world = World::new(&["w-0"]).await;
    world.abandon(&["w-0"]).await;
    world.comment("w-0", &change).await;
    world.perform(vec![forget("w-0")]).await;
    assert_eq!(world.writes(), Vec::<String>::new());
}

/// A reservation of `w-0`.
fn reservation(start: Timestamp) -> ReservationRequest {
    ReservationRequest {
        name: "maint".to_owned(),
        start,
        minutes: 60,
        flags: vec!["MAINT".to_owned()],
        users: vec!["slurm".to_owned()],
        nodes: vec!["w-0".to_owned()],
    }
}

/// The delete of an abandoned record.
fn forget(node: &str) -> Effect {
    Effect::DeleteNodeRecord { node: node.to_owned(), pod: format!("{node}-pod"), host: "host".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn the_service_is_told_what_a_batch_does() {
    let world = World::new(&[]).await;
    let pod = world.pod("d", &json!({}));
    let Effect::CreatePod(mut guest) = world.new_pod("w-1") else { unreachable!() };
    guest.names_its_node = false;
    let creates = vec![world.new_pod("w-0")];
    assert!(ops(&creates).only_creates());
    let effects = [
        world.new_pod("w-0"),
        Effect::CreatePod(guest),
        retire(&pod),
        delete_drained(&pod),
        Effect::DeleteReservation("r".to_owned()),
    ];
    assert_eq!(ops(&effects), Ops { creates: 2, deletes: 1, others: 3 });
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_more_than_a_batch_is_cut_at_its_end() {
    let world = World::new(&[]).await;
    let most = usize::try_from(OPS_PER_BATCH).unwrap();
    let names: Vec<String> = (0..=most).map(|number| number.to_string()).collect();
    let report = world.perform(names.into_iter().map(Effect::DeleteReservation).collect()).await;
    assert_eq!((report.count(WriteKind::ReservationWritten), report.requeue_after), (most, Some(seconds(1))));
    assert_eq!(world.writes().last(), Some(&format!("DELETE reservation/{}", most - 1)));
}
