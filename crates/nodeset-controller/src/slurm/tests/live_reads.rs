//! Node lists and reads of single nodes that start with the call.

use super::*;
use slurm_rest::NodeUpdate;

#[tokio::test(start_paused = true)]
async fn live_list_shows_writes_before_it() {
    let fixture = Fixture::known(&["a"]).await;
    let cluster = fixture.cluster();
    let update = NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() };
    cluster.update_nodes(&["a"], &update).await.unwrap();
    let began = Instant::now();
    let view = cluster.list_nodes_live().await;
    assert!(is_drained(&view, "a"));
    assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait for the poll interval");
    assert_eq!(fixture.requests(), ["POST nodes/", "GET nodes/"]);
    assert!(is_drained(&fixture.view(), "a"), "it replaces the snapshot");
}

#[tokio::test(start_paused = true)]
async fn calls_during_a_list_share_the_next_one() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject_on(Method::GET, "/nodes/", Fault::Slow(seconds(3)));
    let cluster = fixture.cluster();
    // The first list is in flight when the other calls come.
    let later = async {
        advance(1).await;
        fixture.slurm.start_slurmd("b");
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
    let lists = fixture.requests();
    assert_eq!(lists, ["GET nodes/", "GET nodes/"]);
    assert_eq!(fixture.load.reads.most.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_live_list_is_unknown_even_if_the_snapshot_is_fresh() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject(Fault::Refused);
    let view = fixture.cluster().list_nodes_live().await;
    assert!(why(&view).contains("slurmrestd cannot be reached"), "{view:?}");
    assert_eq!(state(&fixture.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn live_list_during_backoff_sends_no_request() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.slurm.inject(Fault::Refused);
    let cluster = fixture.cluster();
    cluster.list_nodes_live().await;
    let requests = fixture.load.requests.load(Relaxed);
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(state(&cluster.list_nodes_live().await), "unknown");
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
    assert_eq!(fixture.load.requests.load(Relaxed), requests);
}

#[tokio::test(start_paused = true)]
async fn live_list_without_restapi_is_not_expected() {
    let mut fixture = Fixture::without_restapi(&["a"]);
    fixture.wait_until("not expected", |view| matches!(view, View::NoRestApi)).await;
    assert_eq!(state(&fixture.cluster().list_nodes_live().await), "not expected");
}

#[tokio::test(start_paused = true)]
async fn single_node_is_read_live() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.slurm.submit_job(&["a"], 1, Some(5));
    let node = fixture.cluster().get_node("a").await.unwrap().unwrap();
    assert!(node.is_busy(), "{node:?}");
    assert_eq!(fixture.cluster().get_node("b").await.unwrap(), None);
}
