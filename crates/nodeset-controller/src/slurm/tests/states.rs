//! The states of a view, not expected, unknown and known, and their transitions.

use super::*;

#[tokio::test(start_paused = true)]
async fn cluster_is_unknown_until_its_first_answer() {
    let mut fixture = Fixture::new(&["a"]);
    assert_eq!(why(&fixture.view()), "Slurm has not been polled yet");
    assert!(fixture.view().is_not_polled_yet());
    assert!(fixture.until_changed().await < seconds(1));
    let known = known(fixture.view());
    assert_eq!(known.snapshot.nodes.keys().collect::<Vec<_>>(), ["a"]);
    assert!(known.uncertain.is_empty());
    assert_eq!(known.snapshot.requested_at, Timestamp::from_second(1_800_000_000).unwrap());
}

#[tokio::test(start_paused = true)]
async fn controller_without_restapi_is_unknown_for_a_minute() {
    let mut fixture = Fixture::without_restapi(&["a"]);
    fixture.view();
    advance(59).await;
    assert_eq!(why(&fixture.view()), "the Controller has no RestApi");
    assert!(fixture.view().is_not_polled_yet(), "it never had one");
    fixture.take_changes();
    assert!(fixture.until_changed().await < seconds(3));
    assert_eq!(state(&fixture.view()), "not expected");
    assert_eq!(fixture.requests(), Vec::<String>::new());

    fixture.add_restapi("ns", "api");
    assert!(fixture.until_changed().await < seconds(2));
    assert_eq!(state(&fixture.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn deleted_restapi_makes_the_cluster_unknown_at_once_and_restarts_the_minute() {
    let mut fixture = Fixture::without_restapi(&["a"]);
    fixture.view();
    advance(59).await;
    fixture.add_restapi("ns", "api");
    fixture.wait_until("known", is_known).await;
    fixture.take_changes();
    fixture.remove_restapi("ns", "api");
    assert!(fixture.until_changed().await < seconds(2));
    assert_eq!(state(&fixture.view()), "unknown");
    assert!(!fixture.view().is_not_polled_yet(), "it had one");
    advance(57).await;
    assert_eq!(state(&fixture.view()), "unknown");
    assert!(fixture.wait_until("not expected", |view| matches!(view, View::NoRestApi)).await < seconds(5));
    assert!(fixture.cluster().update_nodes(&["a"], &slurm_rest::NodeUpdate::Resume).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn slurm_that_never_answers_stays_unknown() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.slurm.inject(Fault::Refused);
    for _ in 0..60 {
        assert_eq!(state(&fixture.view()), "unknown");
        advance(10).await;
    }
    let view = fixture.view();
    assert!(why(&view).starts_with("Slurm has not answered yet: slurmrestd cannot be reached"), "{view:?}");
    assert!(!view.is_not_polled_yet(), "{view:?}");
    fixture.slurm.recover();
    assert!(fixture.wait_until("known", is_known).await <= seconds(16));
}

#[tokio::test(start_paused = true)]
async fn first_answer_is_overdue_after_the_list_timeout() {
    let fixture = Fixture::new(&["a"]);
    fixture.slurm.inject(Fault::Slow(seconds(60)));
    fixture.view();
    advance(8).await;
    let view = fixture.view();
    assert_eq!((why(&view), view.is_not_polled_yet()), ("Slurm has not answered yet", true));
    advance(2).await;
    let view = fixture.view();
    assert!(!view.is_not_polled_yet() && view.lookup("a") == NodeLookup::Unknown, "{view:?}");
}

#[tokio::test(start_paused = true)]
async fn cluster_without_controller_is_not_polled() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.remove_controller("ns");
    assert_eq!(why(&fixture.view()), "Controller slurm does not exist");
    advance(5).await;
    assert!(fixture.clusters.cluster(&key("ns")).is_none());
    assert_eq!((fixture.requests(), fixture.key_reads()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn cluster_without_signing_key_is_unknown_until_the_key_exists() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.set_key(None);
    fixture.view();
    advance(25).await;
    assert_eq!(why(&fixture.view()), "no signing key: Secret tokens does not exist");
    assert_eq!(fixture.key_reads(), 3, "one read every 10 s");
    fixture.set_key(Some(KEY));
    assert!(fixture.wait_until("known", is_known).await <= seconds(10));
}

#[tokio::test(start_paused = true)]
async fn created_signing_key_is_read_at_once_after_refresh() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.set_key(None);
    fixture.view();
    advance(1).await;
    fixture.set_key(Some(KEY));
    fixture.clusters.refresh(&key("ns"));
    assert!(fixture.wait_until("known", is_known).await < seconds(1));
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_stale_after_30_s() {
    let mut fixture = Fixture::known(&["a"]).await;
    let last = known(fixture.view()).snapshot.requested_at;
    fixture.slurm.inject(Fault::Refused);
    advance(28).await;
    assert_eq!(state(&fixture.view()), "known");
    assert!(fixture.until_changed().await <= seconds(3));
    let view = fixture.view();
    let expected = format!("Slurm has not answered since {last}: slurmrestd cannot be reached");
    assert!(why(&view).starts_with(&expected), "{view:?}");
    assert!(!view.is_not_polled_yet(), "{view:?}");
    fixture.slurm.recover();
    assert!(fixture.wait_until("known", is_known).await <= seconds(16));
}

#[tokio::test(start_paused = true)]
async fn malformed_answer_is_a_failure() {
    let mut fixture = Fixture::known(&["a"]).await;
    let body = r#"{"nodes": null}"#.to_owned();
    let (status, kind) = (http::StatusCode::OK, "application/json");
    fixture.slurm.inject(Fault::Answer { status, kind, body });
    fixture.wait_until("unknown", |view| !is_known(view)).await;
    assert!(why(&fixture.view()).contains("is malformed"), "{:?}", fixture.view());
}

#[tokio::test(start_paused = true)]
async fn changed_key_is_used_at_once_after_refresh() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.slurm.change_key(b"another key");
    fixture.set_key(Some(b"another key"));
    fixture.clusters.refresh(&key("ns"));
    advance(31).await;
    assert_eq!(state(&fixture.view()), "known");
    assert_eq!(fixture.key_reads(), 2);
    assert!(fixture.cluster().get_node("a").await.unwrap().is_some(), "writes use the new key");
}

#[tokio::test(start_paused = true)]
async fn refused_key_is_read_again_at_most_every_10_s() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.slurm.change_key(b"another key");
    fixture.wait_until("unknown", |view| !is_known(view)).await;
    assert!(why(&fixture.view()).contains("token refused"), "{:?}", fixture.view());
    let reads = fixture.key_reads();
    advance(60).await;
    assert!((2..=6).contains(&(fixture.key_reads() - reads)), "{}", fixture.key_reads() - reads);
    fixture.set_key(Some(b"another key"));
    assert!(fixture.wait_until("known", is_known).await <= seconds(31));
}

#[tokio::test(start_paused = true)]
async fn accepted_key_stays_in_use_after_its_secret_was_deleted() {
    let fixture = Fixture::known(&["a"]).await;
    fixture.set_key(None);
    fixture.clusters.refresh(&key("ns"));
    advance(40).await;
    assert_eq!(state(&fixture.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn change_of_restapi_starts_with_a_full_list() {
    let mut fixture = Fixture::known(&["a"]).await;
    let other = fixture.serve("ns", "older", fixture.slurm.clone());
    let mut restapi = restapi("ns", "older");
    restapi.metadata.creation_timestamp = None;
    fixture.restapis.apply_watcher_event(&Event::Apply(restapi));
    advance(2).await;
    assert!(other.requests.load(Relaxed) > 0);
    assert!(fixture.requests().contains(&"GET nodes/".to_owned()));
    assert!(is_present(&fixture.view(), "a"));
}

#[tokio::test(start_paused = true)]
async fn recreated_controller_starts_with_an_empty_state() {
    let mut fixture = Fixture::known(&["a", "b"]).await;
    let predecessor = fixture.cluster();
    fixture.slurm.lose_state();
    fixture.slurm.start_slurmd("c");
    fixture.add_controller("ns", "uid-2");
    assert_eq!(why(&fixture.view()), "Slurm has not been polled yet");
    fixture.wait_until("known", is_known).await;
    let view = fixture.view();
    assert_eq!((view.lookup("a"), is_present(&view, "c")), (NodeLookup::Absent, true));
    let late = predecessor.update_nodes(&["c"], &slurm_rest::NodeUpdate::Undrain).await;
    assert_eq!(late.unwrap_err().category(), "unreachable");
    assert_eq!(why(&predecessor.list_nodes_live().await), "Slurm cluster ns/slurm is no longer polled");
}

#[tokio::test(start_paused = true)]
async fn recreated_controller_ends_polling_of_its_predecessor_without_a_reader() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.add_controller("ns", "uid-2");
    assert!(fixture.until_changed().await < seconds(2));
    fixture.requests();
    advance(30).await;
    assert_eq!(fixture.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn cluster_of_a_deleted_controller_is_no_longer_polled() {
    let mut fixture = Fixture::known(&["a"]).await;
    fixture.remove_controller("ns");
    assert!(fixture.until_changed().await < seconds(2));
    fixture.requests();
    advance(60).await;
    assert_eq!(fixture.requests(), Vec::<String>::new());
    assert_eq!(why(&fixture.view()), "Controller slurm does not exist");
}

#[tokio::test(start_paused = true)]
async fn same_name_in_another_namespace_is_another_cluster() {
    let mut fixture = Fixture::known(&["a"]).await;
    let other = FakeSlurm::new();
    other.start_slurmd("b");
    fixture.serve("other", "api", other.clone());
    fixture.add_controller("other", "uid-9");
    fixture.add_restapi("other", "api");
    fixture.clusters.view(&key("other"), NO_QUERIES);
    advance(2).await;
    let (view, other_view) = (fixture.view(), fixture.clusters.view(&key("other"), NO_QUERIES));
    assert_eq!((is_present(&view, "a"), view.lookup("b")), (true, NodeLookup::Absent));
    assert_eq!((other_view.lookup("a"), is_present(&other_view, "b")), (NodeLookup::Absent, true));

    // The failure of one cluster does not delay the other.
    fixture.slurm.inject(Fault::ControllerDown);
    for _ in 0..60 {
        advance(1).await;
        let requested_at = known(fixture.clusters.view(&key("other"), NO_QUERIES)).snapshot.requested_at;
        let age = (other.clock())().duration_since(requested_at).as_secs();
        assert!(age <= 2, "{age} s old");
        fixture.view();
    }
    assert_eq!(state(&fixture.view()), "unknown");
    fixture.take_changes();
    other.submit_job(&["b"], 1, Some(5));
    let changed = tokio::time::timeout(seconds(2), fixture.changes.next()).await;
    assert_eq!(changed.unwrap(), Some(key("other")));
}

#[tokio::test(start_paused = true)]
async fn unreachable_for_counts_from_the_last_answer_or_the_start_of_polling() {
    let fixture = Fixture::new(&["a"]);
    fixture.slurm.inject(Fault::Refused);
    assert_eq!(fixture.clusters.unreachable_for(&key("ns")), seconds(0), "it is not polled");
    fixture.view();
    advance(50).await;
    assert!(fixture.clusters.unreachable_for(&key("ns")) >= seconds(50));
    fixture.slurm.recover();
    advance(60).await;
    fixture.view();
    assert!(fixture.clusters.unreachable_for(&key("ns")) < seconds(30), "it answers again");
}
