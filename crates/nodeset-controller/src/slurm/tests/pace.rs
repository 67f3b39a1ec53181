//! How often Slurm is asked, and how soon what changed is told.

use super::*;
use slurm_rest::{Deadline, NodeUpdate};

#[tokio::test(start_paused = true)]
async fn an_idle_minute_costs_60_answers_without_content_and_two_lists() {
    let mut world = World::settled(&["a", "b"]).await;
    // Beyond the second in which the nodes came to be: the next list may repeat it.
    pass(35).await;
    world.requests();
    world.drain_news();
    pass(60).await;
    let requests = world.requests();
    let lists = requests.iter().filter(|request| *request == "GET nodes/").count();
    let rest = requests.iter().filter(|request| request.starts_with("GET nodes/?update_time=")).count();
    assert_eq!((requests.len(), lists, rest), (60, 2, 58), "{requests:?}");
    assert_eq!(world.drain_news(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_nodes_to_come_back_is_told_when_that_took_too_long() {
    let mut world = World::known(&["a"]).await;
    assert!(known(world.view()).is_new);
    let told = world.until_told().await;
    assert!((seconds(58)..seconds(63)).contains(&told), "{told:?}");
    assert!(!known(world.view()).is_new);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_young_while_nothing_changes() {
    let world = World::known(&["a"]).await;
    for _ in 0..60 {
        pass(1).await;
        let age = (world.slurm.clock())().duration_since(known(world.view()).snapshot.asked);
        assert!(age.as_secs() <= 1, "{age}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_within_2_s() {
    let mut world = World::settled(&["a", "b"]).await;
    pass(5).await;
    let slurm = world.slurm.clone();
    let others = slurm.client();
    let job = slurm.submit_job(&["a"], 1, Some(5));
    assert!(world.until_told().await < seconds(2), "a job begins");
    pass(3).await;
    world.drain_news();
    slurm.end_job(job);
    assert!(world.until_told().await < seconds(2), "a job ends");
    slurm.start_slurmd("c");
    assert!(world.until_told().await < seconds(2), "a node registers");
    others.update_nodes(&["b"], &NodeUpdate::Comment("new".to_owned())).await.unwrap();
    assert!(world.until_told().await < seconds(2), "a comment");
    others.update_nodes(&["b"], &NodeUpdate::Drain { reason: "mine".to_owned() }).await.unwrap();
    assert!(world.until_told().await < seconds(2), "a drain");
    pass(2).await;
    world.drain_news();
    pass(60).await;
    assert_eq!(world.drain_news(), vec![], "nothing else");
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_one_piece_of_news() {
    let mut world = World::known(&["a"]).await;
    for node in ["b", "c", "d"] {
        world.slurm.start_slurmd(node);
        pass(2).await;
    }
    assert_eq!(world.drain_news(), [key("ns")]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_slurmctld_never_has_two_reads_in_its_hands() {
    let world = World::new(&["a"]);
    world.slurm.inject(Fault::Slow(seconds(10)));
    for _ in 0..30 {
        assert_eq!(state(&world.view()), "unknown");
        pass(10).await;
    }
    assert_eq!(world.load.reads.most.load(Relaxed), 1);
    assert!(world.load.requests.load(Relaxed) >= 10);
}

#[tokio::test(start_paused = true)]
async fn one_that_needs_3_s_is_known_all_the_same() {
    let mut world = World::new(&["a"]);
    world.slurm.inject(Fault::Slow(seconds(3)));
    world.until("known", is_known).await;
    for _ in 0..60 {
        pass(1).await;
        assert_eq!(state(&world.view()), "known");
    }
    assert_eq!(world.load.reads.most.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_slurmrestd_is_asked_less_and_less() {
    let world = World::new(&["a"]);
    world.slurm.inject(Fault::Refused);
    world.view();
    // At 0, 1, 3, 7, 15, 30, 45 and 60 s.
    pass(61).await;
    assert_eq!(world.load.requests.load(Relaxed), 8);
}

fn deadlines(view: &View) -> Vec<(String, Deadline)> {
    let jobs = view.snapshot().and_then(|snapshot| snapshot.jobs.as_ref());
    jobs.into_iter().flat_map(|jobs| jobs.deadlines.clone()).collect()
}

fn count_of_jobs(requests: &[String]) -> usize {
    requests.iter().filter(|request| request.contains("jobs")).count()
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_jobs_are_known_while_nodes_are_busy() {
    let mut world = World::known(&["a", "b"]).await;
    pass(30).await;
    assert_eq!(count_of_jobs(&world.requests()), 0);
    let start = (world.slurm.clock())();
    let at = |minutes: i64| Deadline::At(start + jiff::SignedDuration::from_mins(minutes));
    let first = world.slurm.submit_job(&["a"], 1, Some(5));
    let second = world.slurm.submit_job(&["a"], 1, Some(9));
    let until = vec![("a".to_owned(), at(9))];
    assert!(world.until("the later end", |view| deadlines(view) == until).await < seconds(2));
    world.slurm.submit_job(&["b"], 1, None);
    let both = vec![("a".to_owned(), at(9)), ("b".to_owned(), Deadline::Never)];
    assert!(world.until("another busy node", |view| deadlines(view) == both).await < seconds(3));

    world.requests();
    pass(60).await;
    assert_eq!(count_of_jobs(&world.requests()), 6, "every 10 s");

    world.drain_news();
    world.slurm.end_job(second);
    let until = vec![("a".to_owned(), at(5)), ("b".to_owned(), Deadline::Never)];
    assert!(world.until("the earlier end", |view| deadlines(view) == until).await <= seconds(11));
    assert!(!world.drain_news().is_empty());
    for job in [first, 3] {
        world.slurm.end_job(job);
    }
    world.until("none", |view| view.snapshot().is_some_and(|snapshot| snapshot.jobs.is_none())).await;
    world.requests();
    pass(30).await;
    assert_eq!(count_of_jobs(&world.requests()), 0);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_partition_are_known_to_those_who_wish() {
    let mut world = World::known(&["a"]).await;
    let count = |view: &View| {
        let jobs = view.snapshot().and_then(|snapshot| snapshot.jobs.clone());
        jobs.map(|jobs| jobs.by_partition.get("all").copied().unwrap_or_default())
    };
    assert_eq!(count(&world.view()), None);
    assert!(world.until_with(JOBS, "asked at once", |view| count(view) == Some(0)).await < seconds(1));
    world.drain_news();
    let waiting = world.slurm.submit_job(&["none"], 1, Some(5));
    assert!(world.until_told().await <= seconds(11));
    assert_eq!(count(&world.view()), Some(1));
    world.slurm.end_job(waiting);
    pass(11).await;
    assert_eq!(count(&world.view()), Some(1), "finished ones count");
    // What nobody keeps fresh is not known.
    world.slurm.inject_on(Method::GET, "/jobs", Fault::Refused);
    world.until_with(JOBS, "too old", |view| count(view).is_none()).await;
    assert_eq!(state(&world.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn whether_a_partition_takes_jobs_is_known_from_before_its_jobs() {
    let mut world = World::known(&["a"]).await;
    let open = |view: &View| {
        let jobs = view.snapshot().and_then(|snapshot| snapshot.jobs.clone());
        jobs.and_then(|jobs| jobs.open_partitions).map(Vec::from_iter)
    };
    world.slurm.submit_job(&["a"], 1, None);
    world.until("busy", |view| !deadlines(view).is_empty()).await;
    assert_eq!(open(&world.view()), None, "nobody asked");
    world.requests();
    world.until_with(JOBS, "asked", |view| open(view) == Some(vec!["all".to_owned()])).await;
    let mut requests = world.requests();
    requests.retain(|request| !request.contains("nodes"));
    assert_eq!(requests, ["GET partitions/", "GET jobs/"]);

    let drained = r#"{ "partitions": [{ "name": "all", "partition": { "state": ["DRAIN"] } }] }"#;
    let answer =
        Fault::Answer { status: http::StatusCode::OK, kind: "application/json", body: drained.to_owned() };
    world.slurm.inject_on(Method::GET, "/partitions", answer);
    world.drain_news();
    assert!(world.until_told().await <= seconds(11));
    assert_eq!(open(&world.view()), Some(vec![]));
    world.slurm.inject_on(Method::GET, "/partitions", Fault::Refused);
    world.until_with(JOBS, "not known", |view| open(view).is_none()).await;
    assert!(!deadlines(&world.view()).is_empty(), "the jobs are known all the same");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nobody_wants_to_know_of_is_left_alone() {
    let mut world = World::settled(&["a"]).await;
    pass(230).await;
    assert_eq!(world.drain_news(), vec![]);
    assert!(world.until_told().await < seconds(15), "who still wants to know?");
    pass(70).await;
    world.requests();
    pass(600).await;
    assert_eq!(world.requests(), Vec::<String>::new());

    // And is asked again when somebody does.
    assert_eq!(state(&world.view()), "unknown");
    assert!(world.until("known", is_known).await < seconds(1));
    for _ in 0..4 {
        world.until_told().await;
        world.view();
    }
    assert_eq!(state(&world.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes() {
    let names: Vec<String> = (0..1000).map(|number| format!("w{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::settled(&names).await;
    assert_eq!(known(world.view()).snapshot.nodes.len(), 1000);
    let update = NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() };
    world.cluster().update_nodes(&names, &update).await.unwrap();
    assert_eq!(known(world.view()).uncertain.len(), 1000);
    assert!(
        world.until("drained", |view| names.iter().all(|name| is_drained(view, name))).await < seconds(2)
    );
    pass(40).await;
    world.requests();
    world.drain_news();
    pass(60).await;
    assert_eq!(world.requests().iter().filter(|request| *request == "GET nodes/").count(), 2);
    assert_eq!(world.drain_news(), vec![]);

    // All but a few are lost at once: nobody is taken for gone.
    world.slurm.inject_on(Method::GET, "/nodes/", Fault::OnlyNodes(10));
    world.until("cut short", |view| view.lookup("w999") == NodeLookup::Unknown).await;
    assert_eq!(known(world.view()).uncertain.len(), 990);
}
