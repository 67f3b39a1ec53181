//! What a list proves about nodes that are not in it.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_that_was_never_seen_is_absent() {
    let world = World::known(&["a"]).await;
    assert_eq!(world.view().lookup("never"), NodeLookup::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_somebody_deleted_is_in_doubt_until_lists_agree() {
    let mut world = World::known(&["a", "b", "c"]).await;
    world.slurm.client().delete_node("c").await.unwrap();
    assert!(world.until_told().await < seconds(2));
    assert_eq!(world.view().lookup("c"), NodeLookup::Unknown);
    pass(19).await;
    assert_eq!(world.view().lookup("c"), NodeLookup::Unknown);
    assert!(is_present(&world.view(), "a"));
    assert!(world.until_told().await <= seconds(40));
    assert_eq!(world.view().lookup("c"), NodeLookup::Absent);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_was_never_gone() {
    let mut world = World::known(&["a", "b", "c"]).await;
    world.slurm.client().delete_node("c").await.unwrap();
    world.until("in doubt", |view| view.lookup("c") == NodeLookup::Unknown).await;
    world.slurm.start_slurmd("c");
    assert!(world.until("present", |view| is_present(view, "c")).await < seconds(2));
    pass(120).await;
    assert!(is_present(&world.view(), "c"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_we_deleted_is_gone_as_soon_as_a_list_shows_it() {
    let mut world = World::known(&["a"]).await;
    world.cluster().delete_node("a").await.unwrap();
    assert_eq!(world.view().lookup("a"), NodeLookup::Unknown);
    assert!(world.until("absent", |view| view.lookup("a") == NodeLookup::Absent).await < seconds(2));
}

#[tokio::test(start_paused = true)]
async fn a_slurm_that_lost_its_state_is_not_believed_for_a_minute() {
    let mut world = World::known(&["a", "b"]).await;
    world.slurm.lose_state();
    world.until_told().await;
    for _ in 0..59 {
        let view = world.view();
        assert_eq!((view.lookup("a"), view.lookup("b")), (NodeLookup::Unknown, NodeLookup::Unknown));
        pass(1).await;
    }
    assert!(world.until("believed", |view| view.lookup("a") == NodeLookup::Absent).await <= seconds(31));
}

#[tokio::test(start_paused = true)]
async fn a_partial_list_puts_what_it_lacks_in_doubt_and_no_more() {
    let mut world = World::known(&["a", "b", "c", "d"]).await;
    world.slurm.inject_on(Method::GET, "/nodes/", Fault::OnlyNodes(1));
    world.until("cut short", |view| view.lookup("d") == NodeLookup::Unknown).await;
    let view = world.view();
    assert!(is_present(&view, "a"));
    assert_eq!([view.lookup("b"), view.lookup("c")], [NodeLookup::Unknown; 2]);
    drop(view);
    for _ in 0..5 {
        pass(10).await;
        assert_eq!(world.view().lookup("d"), NodeLookup::Unknown);
    }
    world.slurm.recover();
    assert!(world.until("whole", |view| is_present(view, "d")).await <= seconds(31));
    assert!(known(world.view()).uncertain.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_prove_nothing() {
    let mut world = World::known(&["a", "b", "c"]).await;
    world.slurm.client().delete_node("c").await.unwrap();
    world.until("in doubt", |view| view.lookup("c") == NodeLookup::Unknown).await;
    world.slurm.inject(Fault::Refused);
    pass(25).await;
    assert_eq!(world.view().lookup("c"), NodeLookup::Unknown);
    pass(60).await;
    assert_eq!(world.view().lookup("c"), NodeLookup::Unknown);
    world.slurm.recover();
    world.until("absent", |view| view.lookup("c") == NodeLookup::Absent).await;
}
