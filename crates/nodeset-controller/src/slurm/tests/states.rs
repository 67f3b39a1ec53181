//! Not expected, unknown, known, and the ways between them.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cluster_is_unknown_until_it_answered() {
    let mut world = World::new(&["a"]);
    assert_eq!(why(&world.view()), "Slurm was not asked yet");
    assert!(world.view().is_not_polled_yet());
    assert!(world.until_told().await < seconds(1));
    let known = known(world.view());
    assert_eq!(known.snapshot.nodes.keys().collect::<Vec<_>>(), ["a"]);
    assert!(known.uncertain.is_empty());
    assert_eq!(known.snapshot.asked, Timestamp::from_second(1_800_000_000).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_restapi_is_given_a_minute() {
    let mut world = World::without_restapi(&["a"]);
    world.view();
    pass(59).await;
    assert_eq!(why(&world.view()), "the Controller has no RestApi");
    assert!(world.view().is_not_polled_yet(), "there never was one");
    world.drain_news();
    assert!(world.until_told().await < seconds(3));
    assert_eq!(state(&world.view()), "not expected");
    assert_eq!(world.requests(), Vec::<String>::new());

    world.add_restapi("ns", "api");
    assert!(world.until_told().await < seconds(2));
    assert_eq!(state(&world.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn a_restapi_that_goes_makes_the_cluster_unknown_at_once_and_the_minute_begins_anew() {
    let mut world = World::without_restapi(&["a"]);
    world.view();
    pass(59).await;
    world.add_restapi("ns", "api");
    world.until("known", is_known).await;
    world.drain_news();
    world.remove_restapi("ns", "api");
    assert!(world.until_told().await < seconds(2));
    assert_eq!(state(&world.view()), "unknown");
    assert!(!world.view().is_not_polled_yet(), "there was one");
    pass(57).await;
    assert_eq!(state(&world.view()), "unknown");
    assert!(world.until("not expected", |view| matches!(view, View::NotExpected)).await < seconds(5));
    assert!(world.cluster().update_nodes(&["a"], &slurm_rest::NodeUpdate::Resume).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_slurm_that_never_answers_is_expected_for_ever() {
    let mut world = World::new(&["a"]);
    world.slurm.inject(Fault::Refused);
    for _ in 0..60 {
        assert_eq!(state(&world.view()), "unknown");
        pass(10).await;
    }
    let view = world.view();
    assert!(why(&view).starts_with("Slurm has not answered yet: slurmrestd cannot be reached"), "{view:?}");
    assert!(!view.is_not_polled_yet(), "{view:?}");
    world.slurm.recover();
    assert!(world.until("known", is_known).await <= seconds(16));
}

#[tokio::test(start_paused = true)]
async fn a_slurm_with_its_first_answer_on_the_way_is_no_trouble_and_one_that_is_too_slow_is() {
    let world = World::new(&["a"]);
    world.slurm.inject(Fault::Slow(seconds(60)));
    world.view();
    pass(4).await;
    let view = world.view();
    assert_eq!((why(&view), view.is_not_polled_yet()), ("Slurm has not answered yet", true));
    pass(2).await;
    let view = world.view();
    assert!(!view.is_not_polled_yet() && view.lookup("a") == NodeLookup::Unknown, "{view:?}");
}

#[tokio::test(start_paused = true)]
async fn without_controller_nobody_is_asked() {
    let mut world = World::new(&["a"]);
    world.remove_controller("ns");
    assert_eq!(why(&world.view()), "Controller slurm does not exist");
    pass(5).await;
    assert!(world.clusters.cluster(&key("ns")).is_none());
    assert_eq!((world.requests(), world.key_reads()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn without_signing_key_a_cluster_is_unknown_until_there_is_one() {
    let mut world = World::new(&["a"]);
    world.set_key(None);
    world.view();
    pass(25).await;
    assert_eq!(why(&world.view()), "no signing key: Secret tokens does not exist");
    assert_eq!(world.key_reads(), 3, "one read every 10 s");
    world.set_key(Some(KEY));
    assert!(world.until("known", is_known).await <= seconds(10));
}

#[tokio::test(start_paused = true)]
async fn a_signing_key_that_appears_is_read_at_once_when_that_is_told() {
    let mut world = World::new(&["a"]);
    world.set_key(None);
    world.view();
    pass(1).await;
    world.set_key(Some(KEY));
    world.clusters.refresh(&key("ns"));
    assert!(world.until("known", is_known).await < seconds(1));
}

#[tokio::test(start_paused = true)]
async fn what_was_known_is_good_for_30_s() {
    let mut world = World::known(&["a"]).await;
    let last = known(world.view()).snapshot.asked;
    world.slurm.inject(Fault::Refused);
    pass(28).await;
    assert_eq!(state(&world.view()), "known");
    assert!(world.until_told().await <= seconds(3));
    let view = world.view();
    let expected = format!("Slurm has not answered since {last}: slurmrestd cannot be reached");
    assert!(why(&view).starts_with(&expected), "{view:?}");
    assert!(!view.is_not_polled_yet(), "{view:?}");
    world.slurm.recover();
    assert!(world.until("known", is_known).await <= seconds(16));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_understands_is_none() {
    let mut world = World::known(&["a"]).await;
    let body = r#"{"nodes": null}"#.to_owned();
    let (status, kind) = (http::StatusCode::OK, "application/json");
    world.slurm.inject(Fault::Answer { status, kind, body });
    world.until("unknown", |view| !is_known(view)).await;
    assert!(why(&world.view()).contains("not understood"), "{:?}", world.view());
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_used_at_once_when_its_change_is_told() {
    let world = World::known(&["a"]).await;
    world.slurm.change_key(b"another key");
    world.set_key(Some(b"another key"));
    world.clusters.refresh(&key("ns"));
    pass(31).await;
    assert_eq!(state(&world.view()), "known");
    assert_eq!(world.key_reads(), 2);
    assert!(world.cluster().get_node("a").await.unwrap().is_some(), "writes use the new key as well");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_slurm_refuses_is_read_again_and_not_more_than_every_10_s() {
    let mut world = World::known(&["a"]).await;
    world.slurm.change_key(b"another key");
    world.until("unknown", |view| !is_known(view)).await;
    assert!(why(&world.view()).contains("token refused"), "{:?}", world.view());
    let reads = world.key_reads();
    pass(60).await;
    assert!((2..=6).contains(&(world.key_reads() - reads)), "{}", world.key_reads() - reads);
    world.set_key(Some(b"another key"));
    assert!(world.until("known", is_known).await <= seconds(31));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_works_outlives_its_secret() {
    let world = World::known(&["a"]).await;
    world.set_key(None);
    world.clusters.refresh(&key("ns"));
    pass(40).await;
    assert_eq!(state(&world.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn another_restapi_is_asked_for_everything() {
    let mut world = World::known(&["a"]).await;
    let other = world.serve("ns", "older", world.slurm.clone());
    let mut restapi = restapi("ns", "older");
    restapi.metadata.creation_timestamp = None;
    world.restapis.apply_watcher_event(&Event::Apply(restapi));
    pass(2).await;
    assert!(other.requests.load(Relaxed) > 0);
    assert!(world.requests().contains(&"GET nodes/".to_owned()));
    assert!(is_present(&world.view(), "a"));
}

#[tokio::test(start_paused = true)]
async fn a_controller_made_anew_inherits_nothing() {
    let mut world = World::known(&["a", "b"]).await;
    let predecessor = world.cluster();
    world.slurm.lose_state();
    world.slurm.start_slurmd("c");
    world.add_controller("ns", "uid-2");
    assert_eq!(why(&world.view()), "Slurm was not asked yet");
    world.until("known", is_known).await;
    let view = world.view();
    assert_eq!((view.lookup("a"), is_present(&view, "c")), (NodeLookup::Absent, true));
    let late = predecessor.update_nodes(&["c"], &slurm_rest::NodeUpdate::Undrain).await;
    assert_eq!(late.unwrap_err().category(), "unreachable");
    assert_eq!(why(&predecessor.list_nodes_live().await), "ns/slurm is not there any more");
}

#[tokio::test(start_paused = true)]
async fn a_controller_made_anew_ends_its_predecessor_even_if_nobody_asks() {
    let mut world = World::known(&["a"]).await;
    world.add_controller("ns", "uid-2");
    assert!(world.until_told().await < seconds(2));
    world.requests();
    pass(30).await;
    assert_eq!(world.requests(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_goes_is_forgotten_and_not_asked_about() {
    let mut world = World::known(&["a"]).await;
    world.remove_controller("ns");
    assert!(world.until_told().await < seconds(2));
    world.requests();
    pass(60).await;
    assert_eq!(world.requests(), Vec::<String>::new());
    assert_eq!(why(&world.view()), "Controller slurm does not exist");
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_another_namespace_is_another_cluster() {
    let mut world = World::known(&["a"]).await;
    let other = FakeSlurm::new();
    other.start_slurmd("b");
    world.serve("other", "api", other.clone());
    world.add_controller("other", "uid-9");
    world.add_restapi("other", "api");
    world.clusters.view(&key("other"), NOTHING);
    pass(2).await;
    let (view, other_view) = (world.view(), world.clusters.view(&key("other"), NOTHING));
    assert_eq!((is_present(&view, "a"), view.lookup("b")), (true, NodeLookup::Absent));
    assert_eq!((other_view.lookup("a"), is_present(&other_view, "b")), (NodeLookup::Absent, true));

    // One that dies costs the other nothing.
    world.slurm.inject(Fault::ControllerDown);
    for _ in 0..60 {
        pass(1).await;
        let asked = known(world.clusters.view(&key("other"), NOTHING)).snapshot.asked;
        let age = (other.clock())().duration_since(asked).as_secs();
        assert!(age <= 2, "{age} s old");
        world.view();
    }
    assert_eq!(state(&world.view()), "unknown");
    world.drain_news();
    other.submit_job(&["b"], 1, Some(5));
    let told = tokio::time::timeout(seconds(2), world.news.next()).await;
    assert_eq!(told.unwrap(), Some(key("other")));
}

#[tokio::test(start_paused = true)]
async fn silence_counts_from_the_last_answer_and_before_the_first_from_the_first_question() {
    let world = World::new(&["a"]);
    world.slurm.inject(Fault::Refused);
    assert_eq!(world.clusters.unreachable_for(&key("ns")), seconds(0), "nobody has asked");
    world.view();
    pass(50).await;
    assert!(world.clusters.unreachable_for(&key("ns")) >= seconds(50));
    world.slurm.recover();
    pass(60).await;
    world.view();
    assert!(world.clusters.unreachable_for(&key("ns")) < seconds(30), "it answers again");
}
