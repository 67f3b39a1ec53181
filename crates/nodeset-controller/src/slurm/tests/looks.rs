//! Looks that begin now.

use super::*;
use slurm_rest::NodeUpdate;

#[tokio::test(start_paused = true)]
async fn a_look_shows_what_happened_before_it() {
    let world = World::known(&["a"]).await;
    let cluster = world.cluster();
    let update = NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() };
    cluster.update_nodes(&["a"], &update).await.unwrap();
    let began = Instant::now();
    let view = cluster.list_nodes_live().await;
    assert!(is_drained(&view, "a"));
    assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait for its turn");
    assert_eq!(world.requests(), ["POST nodes/", "GET nodes/"]);
    assert!(is_drained(&world.view(), "a"), "it is the snapshot from now on");
}

#[tokio::test(start_paused = true)]
async fn looks_that_come_while_a_read_is_under_way_share_the_next_one() {
    let world = World::known(&["a"]).await;
    world.slurm.inject_on(Method::GET, "/nodes/", Fault::Slow(seconds(3)));
    let cluster = world.cluster();
    // The first is under way when the others come.
    let later = async {
        pass(1).await;
        world.slurm.start_slurmd("b");
        futures::future::join3(
            cluster.list_nodes_live(),
            cluster.list_nodes_live(),
            cluster.list_nodes_live(),
        )
        .await
    };
    let (first, (second, third, fourth)) = futures::future::join(cluster.list_nodes_live(), later).await;
    assert!(is_known(&first));
    for view in [second, third, fourth] {
        assert!(is_present(&view, "b"));
    }
    let lists = world.requests();
    assert_eq!(lists, ["GET nodes/", "GET nodes/"]);
    assert_eq!(world.load.reads.most.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_shows_nothing_even_if_an_earlier_one_is_still_good() {
    let world = World::known(&["a"]).await;
    world.slurm.inject(Fault::Refused);
    let view = world.cluster().list_nodes_live().await;
    assert!(why(&view).contains("slurmrestd cannot be reached"), "{view:?}");
    assert_eq!(state(&world.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_failed_a_moment_ago_is_not_asked_again_for_a_look() {
    let world = World::known(&["a"]).await;
    world.slurm.inject(Fault::Refused);
    let cluster = world.cluster();
    cluster.list_nodes_live().await;
    let requests = world.load.requests.load(Relaxed);
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(state(&cluster.list_nodes_live().await), "unknown");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    assert_eq!(world.load.requests.load(Relaxed), requests);
}

#[tokio::test(start_paused = true)]
async fn a_look_where_nobody_is_expected_says_so() {
    let mut world = World::without_restapi(&["a"]);
    world.until("not expected", |view| matches!(view, View::NotExpected)).await;
    assert_eq!(state(&world.cluster().list_nodes_live().await), "not expected");
}

#[tokio::test(start_paused = true)]
async fn a_single_node_is_read_directly() {
    let world = World::known(&["a"]).await;
    world.slurm.submit_job(&["a"], 1, Some(5));
    let node = world.cluster().get_node("a").await.unwrap().unwrap();
    assert!(node.is_busy(), "{node:?}");
    assert_eq!(world.cluster().get_node("b").await.unwrap(), None);
}
