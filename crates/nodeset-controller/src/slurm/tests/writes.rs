//! What is known of a node after it was written to.

use super::*;
use rstest::rstest;
use slurm_rest::{NodeUpdate, ReservationRequest};

fn drain() -> NodeUpdate {
    NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_in_doubt_from_a_write_to_the_next_read() {
    let mut world = World::known(&["a", "b"]).await;
    world.cluster().update_nodes(&["a"], &drain()).await.unwrap();
    assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
    assert!(is_present(&world.view(), "b"));
    assert!(world.until_told().await < seconds(2));
    assert!(is_drained(&world.view(), "a"));
    assert!(known(world.view()).uncertain.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changed_nothing_is_told_when_it_was_seen() {
    let mut world = World::known(&["a"]).await;
    let refused = world.cluster().update_nodes(&["a"], &NodeUpdate::Resume).await.unwrap_err();
    assert_eq!(refused.category(), "rejected");
    assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
    pass(0).await;
    assert!(world.until_told().await < seconds(2));
    assert!(is_present(&world.view(), "a"));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_began_before_the_answer_does_not_count() {
    let mut world = World::known(&["a"]).await;
    world.slurm.inject_on(Method::GET, "/nodes/", Fault::Slow(seconds(2)));
    // The next read is under connection.
    pass(2).await;
    let asked_before = known(world.view()).snapshot.asked;
    world.cluster().update_nodes(&["a"], &drain()).await.unwrap();
    world.until("that read", |view| known(view.clone()).snapshot.asked > asked_before).await;
    assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
    world.until("the next read", |view| is_drained(view, "a")).await;
}

#[rstest]
#[case::done(true)]
#[case::not_done(false)]
#[tokio::test(start_paused = true)]
async fn a_write_without_answer_leaves_doubt_for_40_s(#[case] applied: bool) {
    let mut world = World::known(&["a", "b"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", Fault::NoAnswer { applied });
    let sent = Instant::now();
    let error = world.cluster().update_nodes(&["a"], &drain()).await.unwrap_err();
    assert_eq!((error.category(), sent.elapsed()), ("timeout", seconds(10)));
    while sent.elapsed() < seconds(39) {
        assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
        assert!(is_present(&world.view(), "b"));
        pass(1).await;
    }
    world.drain_news();
    assert!(world.until_told().await < seconds(3));
    assert!(is_present(&world.view(), "a"));
    assert_eq!(is_drained(&world.view(), "a"), applied);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_lands_late_is_not_missed() {
    let mut world = World::known(&["a"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", Fault::ControllerHangs);
    let error = world.cluster().update_nodes(&["a"], &drain()).await.unwrap_err();
    assert!(error.maybe_applied(), "{error}");
    pass(25).await;
    assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
    world.slurm.recover();
    world.until("clear", |view| is_present(view, "a")).await;
    assert!(is_drained(&world.view(), "a"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_nobody_waits_for_any_more_leaves_doubt() {
    let mut world = World::known(&["a"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", Fault::Slow(seconds(5)));
    let (cluster, update) = (world.cluster(), drain());
    let abandoned = tokio::time::timeout(seconds(1), cluster.update_nodes(&["a"], &update)).await;
    assert!(abandoned.is_err());
    pass(30).await;
    assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
    world.until("clear", |view| is_drained(view, "a")).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_to_a_cluster_that_fails() {
    let mut world = World::known(&["a"]).await;
    world.slurm.inject_on(Method::GET, "/nodes/", Fault::ControllerDown);
    pass(7).await;
    assert_eq!(state(&world.view()), "known");
    world.requests();
    let error = world.cluster().update_nodes(&["a"], &drain()).await.unwrap_err();
    assert_eq!((error.category(), error.maybe_applied()), ("unreachable", false));
    assert!(!world.requests().iter().any(|request| request.starts_with("POST")));
    world.slurm.recover();
    world.until("present", |view| is_present(view, "a")).await;
    pass(16).await;
    world.cluster().update_nodes(&["a"], &drain()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn eight_writes_are_under_way_at_a_time() {
    let world = World::known(&["a"]).await;
    world.slurm.inject_on(Method::POST, "/nodes/", Fault::Slow(seconds(1)));
    let (cluster, update) = (world.cluster(), drain());
    let writes = (0..20).map(|_| cluster.update_nodes(&["a"], &update));
    let began = Instant::now();
    let results = futures::future::join_all(writes).await;
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(began.elapsed(), seconds(3));
    assert_eq!(world.load.writes.most.load(Relaxed), 8);
    assert_eq!(world.load.reads.most.load(Relaxed), 1);
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
async fn reservations_are_known_to_those_who_wish_and_unknown_while_they_change() {
    let mut world = World::known(&["a", "b"]).await;
    assert_eq!(reserved(&world.view()), None);
    let list = |nodes: &[&str]| Some(nodes.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let (none, both, one) = (list(&[]), list(&["[a-b]"]), list(&["a"]));
    world.until_with(RESERVATIONS, "none", |view| reserved(view) == none).await;
    let cluster = world.cluster();
    cluster.put_reservation(&reservation(&["a", "b"])).await.unwrap();
    assert_eq!(reserved(&world.view()), None);
    world.drain_news();
    assert!(world.until_told().await < seconds(2));
    let made = reserved(&world.view());
    assert!(made == both || made == list(&["a,b"]), "{made:?}");
    cluster.set_reservation_nodes("maintenance", &["a".to_owned()]).await.unwrap();
    assert!(world.until_with(RESERVATIONS, "changed", |view| reserved(view) == one).await < seconds(2));
    cluster.delete_reservation("maintenance").await.unwrap();
    assert!(world.until_with(RESERVATIONS, "deleted", |view| reserved(view) == none).await < seconds(2));
    world.requests();
    for _ in 0..30 {
        pass(1).await;
        world.clusters.view(&key("ns"), RESERVATIONS);
    }
    let asked = world.requests();
    let asked: Vec<_> = asked.iter().filter(|request| request.contains("reservations")).collect();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked.iter().all(|request| request.contains("update_time")), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_was_written_without_answer_stays_unknown() {
    let mut world = World::known(&["a"]).await;
    world.until_with(RESERVATIONS, "none", |view| reserved(view).is_some()).await;
    world.slurm.inject_on(Method::POST, "/reservation", Fault::Lost { applied: true });
    let sent = Instant::now();
    world.cluster().put_reservation(&reservation(&["a"])).await.unwrap_err();
    while sent.elapsed() < seconds(39) {
        assert_eq!(reserved(&world.clusters.view(&key("ns"), RESERVATIONS)), None);
        pass(1).await;
    }
    let one = Some(vec!["a".to_owned()]);
    assert!(world.until_with(RESERVATIONS, "made", |view| reserved(view) == one).await <= seconds(12));
}
