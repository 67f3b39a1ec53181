//! When lists prove that a node does not exist.

use super::*;

#[tokio::test(start_paused = true)]
async fn node_that_was_never_listed_is_absent() {
    let fixture = Fixture::known(&["a"]).await;
    assert_eq!(fixture.view().lookup("never"), NodeLookup::Absent);
}

#[tokio::test(start_paused = true)]
async fn node_deleted_by_others_is_unknown_until_its_absence_is_proven() {
    let mut fixture = Fixture::known(&["a", "b", "c"]).await;
    fixture.slurm.client().delete_node("c").await.unwrap();
    assert!(fixture.until_changed().await < seconds(2));
    assert_eq!(fixture.view().lookup("c"), NodeLookup::Unknown);
    advance(19).await;
    assert_eq!(fixture.view().lookup("c"), NodeLookup::Unknown);
    assert!(is_present(&fixture.view(), "a"));
    assert!(fixture.until_changed().await <= seconds(40));
    assert_eq!(fixture.view().lookup("c"), NodeLookup::Absent);
}

#[tokio::test(start_paused = true)]
async fn node_that_registers_again_is_present() {
    let mut fixture = Fixture::known(&["a", "b", "c"]).await;
    fixture.slurm.client().delete_node("c").await.unwrap();
    fixture.wait_until("unknown", |view| view.lookup("c") == NodeLookup::Unknown).await;
    fixture.slurm.start_slurmd("c");
    assert!(fixture.wait_until("present", |view| is_present(view, "c")).await < seconds(2));
    advance(120).await;
    assert!(is_present(&fixture.view(), "c"));
}

#[tokio::test(start_paused = true)]
async fn node_deleted_by_us_is_absent_after_the_next_list() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.cluster().delete_node("a").await.unwrap();
    assert_eq!(fixture.view().lookup("a"), NodeLookup::Unknown);
    assert!(fixture.wait_until("absent", |view| view.lookup("a") == NodeLookup::Absent).await < seconds(2));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_unknown_for_a_minute_after_slurm_lost_its_state() {
    let mut fixture = Fixture::known(&["a", "b"]).await;
    fixture.slurm.lose_state();
    fixture.until_changed().await;
    for _ in 0..59 {
        let view = fixture.view();
        assert_eq!((view.lookup("a"), view.lookup("b")), (NodeLookup::Unknown, NodeLookup::Unknown));
        advance(1).await;
    }
    assert!(fixture.wait_until("absent", |view| view.lookup("a") == NodeLookup::Absent).await <= seconds(31));
}

#[tokio::test(start_paused = true)]
async fn partial_list_makes_only_the_missing_nodes_unknown() {
    let mut fixture = Fixture::known(&["a", "b", "c", "d"]).await;
    fixture.slurm.inject_on(Method::GET, "/nodes/", Fault::OnlyNodes(1));
    fixture.wait_until("partial list", |view| view.lookup("d") == NodeLookup::Unknown).await;
    let view = fixture.view();
    assert!(is_present(&view, "a"));
    assert_eq!([view.lookup("b"), view.lookup("c")], [NodeLookup::Unknown; 2]);
    drop(view);
    for _ in 0..5 {
        advance(10).await;
        assert_eq!(fixture.view().lookup("d"), NodeLookup::Unknown);
    }
    fixture.slurm.recover();
    assert!(fixture.wait_until("full list", |view| is_present(view, "d")).await <= seconds(31));
    assert!(known(fixture.view()).uncertain.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_lists_prove_no_absence() {
    let mut fixture = Fixture::known(&["a", "b", "c"]).await;
    fixture.slurm.client().delete_node("c").await.unwrap();
    fixture.wait_until("unknown", |view| view.lookup("c") == NodeLookup::Unknown).await;
    fixture.slurm.inject(Fault::Refused);
    advance(25).await;
    assert_eq!(fixture.view().lookup("c"), NodeLookup::Unknown);
    advance(60).await;
    assert_eq!(fixture.view().lookup("c"), NodeLookup::Unknown);
    fixture.slurm.recover();
    fixture.wait_until("absent", |view| view.lookup("c") == NodeLookup::Absent).await;
}
