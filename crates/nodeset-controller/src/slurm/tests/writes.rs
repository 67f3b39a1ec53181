//! Nodes and reservations are uncertain after a write until a read shows its effect.

use super::*;
use rstest::rstest;
use slurm_rest::{NodeUpdate, ReservationRequest};

fn drain() -> NodeUpdate {
    NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn node_is_unknown_from_a_write_to_the_next_read() {
    let mut fixture = Fixture::known(&["a", "b"]).await;
    fixture.cluster().update_nodes(&["a"], &drain()).await.unwrap();
    assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
    assert!(is_present(&fixture.view(), "b"));
    assert!(fixture.until_changed().await < seconds(2));
    assert!(is_drained(&fixture.view(), "a"));
    assert!(known(fixture.view()).uncertain.is_empty());
}

#[tokio::test(start_paused = true)]
async fn read_after_a_write_without_effect_is_published() {
    let mut fixture = Fixture::known(&["a"]).await;
    let refused = fixture.cluster().update_nodes(&["a"], &NodeUpdate::Resume).await.unwrap_err();
    assert_eq!(refused.category(), "rejected");
    assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
    advance(0).await;
    assert!(fixture.until_changed().await < seconds(2));
    assert!(is_present(&fixture.view(), "a"));
}

#[tokio::test(start_paused = true)]
async fn read_that_started_before_the_answer_does_not_show_the_write() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject_on(Method::GET, "/nodes/", Fault::Slow(seconds(2)));
    // The next read is in flight.
    advance(2).await;
    let requested_before = known(fixture.view()).snapshot.requested_at;
    fixture.cluster().update_nodes(&["a"], &drain()).await.unwrap();
    fixture
        .wait_until("that read", |view| known(view.clone()).snapshot.requested_at > requested_before)
        .await;
    assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
    fixture.wait_until("the next read", |view| is_drained(view, "a")).await;
}

#[rstest]
#[case::applied(true)]
#[case::not_applied(false)]
#[tokio::test(start_paused = true)]
async fn node_is_unknown_for_40_s_after_an_unanswered_write(#[case] applied: bool) {
    let mut fixture = Fixture::known(&["a", "b"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", Fault::NoAnswer { applied });
    let sent = Instant::now();
    let error = fixture.cluster().update_nodes(&["a"], &drain()).await.unwrap_err();
    assert_eq!((error.category(), sent.elapsed()), ("timeout", seconds(10)));
    while sent.elapsed() < seconds(39) {
        assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
        assert!(is_present(&fixture.view(), "b"));
        advance(1).await;
    }
    fixture.take_changes();
    assert!(fixture.until_changed().await < seconds(3));
    assert!(is_present(&fixture.view(), "a"));
    assert_eq!(is_drained(&fixture.view(), "a"), applied);
}

#[tokio::test(start_paused = true)]
async fn write_that_is_applied_late_is_shown() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", Fault::ControllerHangs);
    let error = fixture.cluster().update_nodes(&["a"], &drain()).await.unwrap_err();
    assert!(error.maybe_applied(), "{error}");
    advance(25).await;
    assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
    fixture.slurm.recover();
    fixture.wait_until("certain", |view| is_present(view, "a")).await;
    assert!(is_drained(&fixture.view(), "a"));
}

#[tokio::test(start_paused = true)]
async fn node_is_unknown_after_a_cancelled_write() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", Fault::Slow(seconds(5)));
    let (cluster, update) = (fixture.cluster(), drain());
    let abandoned = tokio::time::timeout(seconds(1), cluster.update_nodes(&["a"], &update)).await;
    assert!(abandoned.is_err());
    advance(30).await;
    assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
    fixture.wait_until("certain", |view| is_drained(view, "a")).await;
}

#[tokio::test(start_paused = true)]
async fn write_to_a_failing_cluster_is_not_sent() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject_on(Method::GET, "/nodes/", Fault::ControllerDown);
    advance(11).await;
    assert_eq!(state(&fixture.view()), "known");
    fixture.requests();
    let error = fixture.cluster().update_nodes(&["a"], &drain()).await.unwrap_err();
    assert_eq!((error.category(), error.maybe_applied()), ("unreachable", false));
    assert!(!fixture.requests().iter().any(|request| request.starts_with("POST")));
    fixture.slurm.recover();
    fixture.wait_until("present", |view| is_present(view, "a")).await;
    advance(16).await;
    fixture.cluster().update_nodes(&["a"], &drain()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn eight_writes_are_in_flight_at_a_time() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject_on(Method::POST, "/nodes/", Fault::Slow(seconds(1)));
    let (cluster, update) = (fixture.cluster(), drain());
    let writes = (0..20).map(|_| cluster.update_nodes(&["a"], &update));
    let began = Instant::now();
    let results = futures::future::join_all(writes).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(began.elapsed(), seconds(3));
    assert_eq!(fixture.load.writes.most.load(Relaxed), 8);
    assert_eq!(fixture.load.reads.most.load(Relaxed), 1);
}

fn reservation(nodes: &[&str]) -> ReservationRequest {
    ReservationRequest {
        name: "maintenance".to_owned(),
        start: Timestamp::from_second(1_800_010_000).unwrap(),
        minutes: 60,
        flags: vec!["MAINT".to_owned()],
        users: vec![USER.to_owned()],
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn reserved(view: &View) -> Option<Vec<String>> {
    let reservations = view.snapshot()?.reservations.as_ref()?;
    Some(reservations.values().map(|known| known.node_list.clone()).collect())
}

#[tokio::test(start_paused = true)]
async fn reservations_are_known_while_requested_and_unknown_during_writes() {
    let mut fixture = Fixture::known(&["a", "b"]).await;
    assert_eq!(reserved(&fixture.view()), None);
    let list = |nodes: &[&str]| Some(nodes.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let (none, both, one) = (list(&[]), list(&["[a-b]"]), list(&["a"]));
    fixture.wait_with(RESERVATIONS, "none", |view| reserved(view) == none).await;
    let cluster = fixture.cluster();
    cluster.put_reservation(&reservation(&["a", "b"])).await.unwrap();
    assert_eq!(reserved(&fixture.view()), None);
    fixture.take_changes();
    assert!(fixture.until_changed().await < seconds(2));
    let created = reserved(&fixture.view());
    assert!(created == both || created == list(&["a,b"]), "{created:?}");
    cluster.set_reservation_nodes("maintenance", &["a".to_owned()]).await.unwrap();
    assert!(fixture.wait_with(RESERVATIONS, "changed", |view| reserved(view) == one).await < seconds(2));
    cluster.delete_reservation("maintenance").await.unwrap();
    assert!(fixture.wait_with(RESERVATIONS, "deleted", |view| reserved(view) == none).await < seconds(2));
    fixture.requests();
    for _ in 0..30 {
        advance(1).await;
        fixture.clusters.view(&key("ns"), RESERVATIONS);
    }
    let requests = fixture.requests();
    let lists: Vec<_> = requests.iter().filter(|request| request.contains("reservations")).collect();
    assert_eq!(lists.len(), 3, "{lists:?}");
    assert!(lists.iter().all(|request| request.contains("update_time")), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn reservation_is_unknown_after_an_unanswered_write() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.wait_with(RESERVATIONS, "none", |view| reserved(view).is_some()).await;
    fixture.slurm.inject_on(Method::POST, "/reservation", Fault::Lost { applied: true });
    let sent = Instant::now();
    fixture.cluster().put_reservation(&reservation(&["a"])).await.unwrap_err();
    while sent.elapsed() < seconds(39) {
        assert_eq!(reserved(&fixture.clusters.view(&key("ns"), RESERVATIONS)), None);
        advance(1).await;
    }
    let one = Some(vec!["a".to_owned()]);
    assert!(fixture.wait_with(RESERVATIONS, "created", |view| reserved(view) == one).await <= seconds(12));
}
