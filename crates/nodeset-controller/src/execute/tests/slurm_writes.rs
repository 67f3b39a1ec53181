//! Reservations, and the deletion of node records without a pod.

use super::*;
use rstest::rstest;
use slurm_rest::ReservationRequest;

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

/// The delete of the record of a Slurm node without a pod.
fn delete_record(node: &str) -> Effect {
    Effect::DeleteNodeRecord { node: node.to_owned(), pod: format!("{node}-pod"), host: "host".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn reservations_are_written_in_order_and_records_are_deleted_last() {
    let fixture = Fixture::new(&["w-0", "w-1", "w-2"]).await;
    fixture.abandon_records(&["w-2"]).await;
    let request = reservation(Timestamp::from_second(1_900_000_000).unwrap());
    let nodes = Effect::SetReservationNodes { name: "maint".to_owned(), nodes: vec!["w-1".to_owned()] };
    let report =
        fixture.perform(vec![delete_record("w-2"), Effect::PutReservation(Box::new(request)), nodes]).await;
    assert_eq!(fixture.writes(), ["POST reservation maint", "POST reservation maint", "DELETE node/w-2"]);
    let list = fixture.slurm.client().list_reservations().await.unwrap();
    assert_eq!(list.get("maint").unwrap().node_list, "w-1");
    assert_eq!(
        (report.count(WriteKind::ReservationWritten), report.count(WriteKind::NodeRecordDeleted)),
        (2, 1)
    );
    assert_eq!(
        report.events()[0].note,
        "Deleted defunct Slurm node w-2: backing Pod ns/w-2-pod is gone and Kubernetes node host no longer maps to \
         its Slurm node"
    );
    fixture.perform(vec![Effect::DeleteReservation("maint".to_owned())]).await;
    assert_eq!(fixture.slurm.client().list_reservations().await.unwrap().reservations, []);
}

/// Slurm rejects a reservation of nodes that it does not have.
#[tokio::test(start_paused = true)]
async fn rejected_reservation_does_not_block_other_effects() {
    let fixture = Fixture::new(&["w-0"]).await;
    let start = Timestamp::from_second(1_900_000_000).unwrap();
    let request = ReservationRequest { nodes: vec!["unknown".to_owned()], ..reservation(start) };
    let effects = vec![
        Effect::PutReservation(Box::new(request)),
        Effect::SetReservationNodes { name: "none".to_owned(), nodes: vec!["w-0".to_owned()] },
        fixture.create_pod("w-1"),
        cordon(&fixture.put_pod("w-0", &json!({}))),
    ];
    let report = fixture.perform(effects).await;
    let failed: Vec<&str> = report.failures.iter().map(|failure| failure.object.as_str()).collect();
    assert_eq!(failed, ["Slurm reservation maint", "Slurm reservation none"]);
    let done =
        [WriteKind::PodCreated, WriteKind::PodMarked, WriteKind::NodeDrained].map(|kind| report.count(kind));
    assert_eq!(done, [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn rejected_delete_of_a_reserved_record_is_reported_and_blocks_no_other() {
    let fixture = Fixture::new(&["w-0", "w-1"]).await;
    let start = (fixture.slurm.clock())() + seconds(30);
    fixture.slurm.client().put_reservation(&reservation(start)).await.unwrap();
    fixture.abandon_records(&["w-0", "w-1"]).await;
    let report = fixture.perform(["w-0", "w-1"].map(delete_record).to_vec()).await;
    assert_eq!(report.count(WriteKind::NodeRecordDeleted), 1);
    assert_eq!(
        (report.failures[0].object.as_str(), report.failures[0].category),
        ("Slurm node w-0", "rejected")
    );
}

#[rstest]
#[case::slurmd_responds(
    |fixture: &Fixture| fixture.slurm.start_slurmd("w-0"),
    "w-0 responds again, or belongs to another worker"
)]
#[case::pod_exists(|fixture: &Fixture| drop(fixture.put_pod("w-0-pod", &json!({}))), "Pod w-0-pod exists")]
#[case::slurmrestd_unreachable(
    |fixture: &Fixture| fixture.slurm.inject(Fault::Refused),
    "slurmrestd cannot be reached: no connection: connection refused"
)]
#[tokio::test(start_paused = true)]
async fn record_is_kept_unless_its_pod_and_its_slurmd_are_proven_absent(
    #[case] change: fn(&Fixture),
    #[case] obstacle: &str,
) {
    let fixture = Fixture::new(&["w-0"]).await;
    fixture.abandon_records(&["w-0"]).await;
    change(&fixture);
    let report = fixture.perform(vec![delete_record("w-0")]).await;
    assert_eq!(fixture.writes(), Vec::<String>::new());
    assert_eq!((report.count(WriteKind::NodeRecordDeleted), report.requeue_after), (0, Some(seconds(5))));
    assert_eq!(report.waits, [format!("the record of Slurm node w-0 stays: {obstacle}")]);
}

#[rstest]
#[case::another_nodeset(json!({ "nodeSetUID": "older" }))]
#[case::another_pod(json!({ "podName": "other" }))]
#[case::another_host(json!({ "node": "other" }))]
#[tokio::test(start_paused = true)]
async fn record_is_kept_if_its_comment_names_another_worker(#[case] change: Value) {
    let fixture = Fixture::new(&["w-0"]).await;
    fixture.abandon_records(&["w-0"]).await;
    fixture.set_comment("w-0", &change).await;
    fixture.perform(vec![delete_record("w-0")]).await;
    assert_eq!(fixture.writes(), Vec::<String>::new());
}
