//! How often Slurm is polled, and how soon changes are published.

use super::*;
use operator_runtime::error::chain;
use slurm_rest::{Deadline, NodeUpdate};

#[tokio::test(start_paused = true)]
async fn idle_minute_costs_58_conditional_and_two_full_lists() {
    let mut fixture = Fixture::settled(&["a", "b"]).await;
    // Past the second in which the nodes registered: a conditional list may return it again.
    advance(35).await;
    fixture.requests();
    fixture.take_changes();
    advance(60).await;
    let requests = fixture.all_requests();
    let lists = requests.iter().filter(|request| *request == "GET nodes/").count();
    let states = requests.iter().filter(|request| *request == "GET jobs/state/").count();
    let rest = requests.iter().filter(|request| request.starts_with("GET nodes/?update_time=")).count();
    assert_eq!((requests.len(), lists, states, rest), (64, 2, 4, 58), "{requests:?}");
    assert_eq!(fixture.take_changes(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn end_of_the_first_minute_is_published() {
    let mut fixture = Fixture::known(&["a"]).await;
    assert!(known(fixture.view()).is_new);
    let elapsed = fixture.until_changed().await;
    assert!((seconds(58)..seconds(63)).contains(&elapsed), "{elapsed:?}");
    assert!(!known(fixture.view()).is_new);
}

#[tokio::test(start_paused = true)]
async fn snapshot_stays_fresh_while_nothing_changes() {
    let fixture = Fixture::known(&["a"]).await;
    for _ in 0..60 {
        advance(1).await;
        let age = (fixture.slurm.clock())().duration_since(known(fixture.view()).snapshot.requested_at);
        assert!(age.as_secs() <= 1, "{age}");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_published_within_2_s() {
    let mut fixture = Fixture::settled(&["a", "b"]).await;
    advance(5).await;
    let slurm = fixture.slurm.clone();
    let others = slurm.client();
    let job = slurm.submit_job(&["a"], 1, Some(5));
    assert!(fixture.until_changed().await < seconds(2), "a job begins");
    advance(3).await;
    fixture.take_changes();
    slurm.end_job(job);
    assert!(fixture.until_changed().await < seconds(2), "a job ends");
    slurm.start_slurmd("c");
    assert!(fixture.until_changed().await < seconds(2), "a node registers");
    others.update_nodes(&["b"], &NodeUpdate::Comment("new".to_owned())).await.unwrap();
    assert!(fixture.until_changed().await < seconds(2), "a comment");
    others.update_nodes(&["b"], &NodeUpdate::Drain { reason: "mine".to_owned() }).await.unwrap();
    assert!(fixture.until_changed().await < seconds(2), "a drain");
    advance(2).await;
    fixture.take_changes();
    advance(60).await;
    assert_eq!(fixture.take_changes(), vec![], "nothing else");
}

#[tokio::test(start_paused = true)]
async fn several_changes_are_published_once() {
    let mut fixture = Fixture::known(&["a"]).await;
    for node in ["b", "c", "d"] {
        fixture.slurm.start_slurmd(node);
        advance(2).await;
    }
    assert_eq!(fixture.take_changes(), [key("ns")]);
}

#[tokio::test(start_paused = true)]
async fn slow_slurmctld_never_gets_two_reads_at_a_time() {
    let fixture = Fixture::new(&["a"]);
    fixture.slurm.inject(Fault::Slow(seconds(10)));
    for _ in 0..30 {
        assert_eq!(state(&fixture.view()), "unknown");
        advance(10).await;
    }
    assert_eq!(fixture.load.reads.most.load(Relaxed), 1);
    assert!(fixture.load.requests.load(Relaxed) >= 10);
}

#[tokio::test(start_paused = true)]
async fn slurmctld_that_answers_within_2_s_is_known() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.slurm.inject(Fault::Slow(seconds(2)));
    fixture.wait_until("known", is_known).await;
    for _ in 0..60 {
        advance(1).await;
        assert_eq!(state(&fixture.view()), "known");
    }
    assert_eq!(fixture.load.reads.most.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn dead_slurmrestd_is_polled_with_backoff() {
    let fixture = Fixture::new(&["a"]);
    fixture.slurm.inject(Fault::Refused);
    fixture.view();
    // At 0, 1, 3, 7, 15, 30, 45 and 60 s.
    advance(61).await;
    assert_eq!(fixture.load.requests.load(Relaxed), 8);
}

fn deadlines(view: &View) -> Vec<(String, Deadline)> {
    let jobs = view.snapshot().and_then(|snapshot| snapshot.jobs.as_ref());
    jobs.into_iter().flat_map(|jobs| jobs.deadlines.clone()).collect()
}

fn count_of_jobs(requests: &[String]) -> usize {
    requests.iter().filter(|request| request.contains("jobs")).count()
}

#[tokio::test(start_paused = true)]
async fn deadlines_of_jobs_are_known_while_nodes_are_busy() {
    let mut fixture = Fixture::known(&["a", "b"]).await;
    advance(30).await;
    assert_eq!(count_of_jobs(&fixture.requests()), 0);
    let start = (fixture.slurm.clock())();
    let at = |minutes: i64| Deadline::At(start + jiff::SignedDuration::from_mins(minutes));
    let first = fixture.slurm.submit_job(&["a"], 1, Some(5));
    let second = fixture.slurm.submit_job(&["a"], 1, Some(9));
    let until = vec![("a".to_owned(), at(9))];
    assert!(fixture.wait_until("the later end", |view| deadlines(view) == until).await < seconds(2));
    fixture.slurm.submit_job(&["b"], 1, None);
    let both = vec![("a".to_owned(), at(9)), ("b".to_owned(), Deadline::Never)];
    assert!(fixture.wait_until("another busy node", |view| deadlines(view) == both).await < seconds(3));

    fixture.requests();
    advance(60).await;
    assert_eq!(count_of_jobs(&fixture.requests()), 6, "every 10 s");

    fixture.take_changes();
    fixture.slurm.end_job(second);
    let until = vec![("a".to_owned(), at(5)), ("b".to_owned(), Deadline::Never)];
    assert!(fixture.wait_until("the earlier end", |view| deadlines(view) == until).await <= seconds(11));
    assert!(!fixture.take_changes().is_empty());
    for job in [first, 3] {
        fixture.slurm.end_job(job);
    }
    fixture.wait_until("none", |view| view.snapshot().is_some_and(|snapshot| snapshot.jobs.is_none())).await;
    fixture.requests();
    advance(30).await;
    assert_eq!(count_of_jobs(&fixture.requests()), 0);
}

#[tokio::test(start_paused = true)]
async fn jobs_by_partition_are_known_while_requested() {
    let mut fixture = Fixture::known(&["a"]).await;
    let count = |view: &View| {
        let jobs = view.snapshot().and_then(|snapshot| snapshot.jobs.clone());
        jobs.map(|jobs| jobs.by_partition.get("all").copied().unwrap_or_default())
    };
    assert_eq!(count(&fixture.view()), None);
    assert!(fixture.wait_with(JOBS, "listed at once", |view| count(view) == Some(0)).await < seconds(1));
    fixture.take_changes();
    let waiting = fixture.slurm.submit_job(&["none"], 1, Some(5));
    assert!(fixture.until_changed().await <= seconds(11));
    assert_eq!(count(&fixture.view()), Some(1));
    fixture.slurm.end_job(waiting);
    advance(11).await;
    assert_eq!(count(&fixture.view()), Some(1), "finished jobs count");
    // Jobs that cannot be listed become stale.
    fixture.slurm.inject_on(Method::GET, "/jobs", Fault::Refused);
    fixture.wait_with(JOBS, "stale", |view| count(view).is_none()).await;
    assert_eq!(state(&fixture.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn job_lists_that_time_out_are_requested_less_and_less_often() {
    let fixture = Fixture::known(&["a", "b"]).await;
    fixture.slurm.submit_job(&["a"], 1, None);
    fixture.slurm.inject_on(Method::GET, "/jobs", Fault::Slow(seconds(60)));
    // The states of jobs are a hundredth of their size.
    fixture.slurm.inject_on(Method::GET, "/jobs/state/", Fault::Slow(Duration::ZERO));
    let lists_by_ten_minutes = async || {
        for _ in 0..60 {
            fixture.clusters.view(&key("ns"), JOBS);
            // Busy nodes that come and go are no reason to ask a slow slurmctld again.
            let job = fixture.slurm.submit_job(&["b"], 1, None);
            advance(5).await;
            fixture.slurm.end_job(job);
            advance(5).await;
            assert_eq!(state(&fixture.view()), "known");
        }
        count_of_jobs(&fixture.requests())
    };
    // Each takes 10 s; the pauses after them are 10, 20, 40, 80, 160 and then 300 s.
    let lists = [lists_by_ten_minutes().await, lists_by_ten_minutes().await];
    assert!(lists[0] <= 7 && lists[1] <= 2, "{lists:?}");
    fixture.slurm.recover();
    advance(310).await;
    let before = count_of_jobs(&fixture.requests());
    fixture.clusters.view(&key("ns"), JOBS);
    advance(60).await;
    assert!(before >= 1 && count_of_jobs(&fixture.requests()) >= 5, "a list that succeeds ends the backoff");
}

#[tokio::test(start_paused = true)]
async fn open_partitions_are_listed_before_the_jobs() {
    let mut fixture = Fixture::known(&["a"]).await;
    let open = |view: &View| {
        let jobs = view.snapshot().and_then(|snapshot| snapshot.jobs.clone());
        jobs.and_then(|jobs| jobs.open_partitions).map(Vec::from_iter)
    };
    fixture.slurm.submit_job(&["a"], 1, None);
    fixture.wait_until("busy", |view| !deadlines(view).is_empty()).await;
    assert_eq!(open(&fixture.view()), None, "not requested");
    fixture.requests();
    fixture.wait_with(JOBS, "requested", |view| open(view) == Some(vec!["all".to_owned()])).await;
    let mut requests = fixture.requests();
    requests.retain(|request| !request.contains("nodes"));
    assert_eq!(requests, ["GET partitions/", "GET jobs/"]);

    let drained = r#"{ "partitions": [{ "name": "all", "partition": { "state": ["DRAIN"] } }] }"#;
    let answer =
        Fault::Answer { status: http::StatusCode::OK, kind: "application/json", body: drained.to_owned() };
    fixture.slurm.inject_on(Method::GET, "/partitions", answer);
    fixture.take_changes();
    assert!(fixture.until_changed().await <= seconds(11));
    assert_eq!(open(&fixture.view()), Some(vec![]));
    fixture.slurm.inject_on(Method::GET, "/partitions", Fault::Refused);
    fixture.wait_with(JOBS, "unknown partitions", |view| open(view).is_none()).await;
    assert!(!deadlines(&fixture.view()).is_empty(), "the jobs are known");
}

#[tokio::test(start_paused = true)]
async fn cluster_without_reader_is_no_longer_polled() {
    let mut fixture = Fixture::settled(&["a"]).await;
    advance(230).await;
    assert_eq!(fixture.take_changes(), vec![]);
    assert!(fixture.until_changed().await < seconds(15), "readers are requested");
    advance(70).await;
    fixture.requests();
    advance(600).await;
    assert_eq!(fixture.requests(), Vec::<String>::new());

    // A new reader starts polling again.
    assert_eq!(state(&fixture.view()), "unknown");
    assert!(fixture.wait_until("known", is_known).await < seconds(1));
    for _ in 0..4 {
        fixture.until_changed().await;
        fixture.view();
    }
    assert_eq!(state(&fixture.view()), "known");
}

#[tokio::test(start_paused = true)]
async fn thousand_nodes_are_polled_like_a_few() {
    let names: Vec<String> = (0..1000).map(|number| format!("w{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fixture = Fixture::settled(&names).await;
    assert_eq!(known(fixture.view()).snapshot.nodes.len(), 1000);
    let update = NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() };
    fixture.cluster().update_nodes(&names, &update).await.unwrap();
    assert_eq!(known(fixture.view()).uncertain.len(), 1000);
    assert!(
        fixture.wait_until("drained", |view| names.iter().all(|name| is_drained(view, name))).await
            < seconds(2)
    );
    advance(40).await;
    fixture.requests();
    fixture.take_changes();
    advance(60).await;
    assert_eq!(fixture.requests().iter().filter(|request| *request == "GET nodes/").count(), 2);
    assert_eq!(fixture.take_changes(), vec![]);

    // A list that lacks most nodes proves no absence.
    fixture.slurm.inject_on(Method::GET, "/nodes/", Fault::OnlyNodes(10));
    fixture.wait_until("partial list", |view| view.lookup("w999") == NodeLookup::Unknown).await;
    assert_eq!(known(fixture.view()).uncertain.len(), 990);
}

#[tokio::test(start_paused = true)]
async fn cluster_of_another_replica_is_polled_no_longer() {
    let fixture = Fixture::known(&["n-0"]).await;
    let cluster = fixture.cluster();
    fixture.is_owned.store(false, Relaxed);
    advance(2).await;
    fixture.slurm.take_requests();
    advance(120).await;
    assert_eq!(fixture.requests(), Vec::<String>::new());
    let error = cluster.get_node("n-0").await.unwrap_err();
    assert!(chain(&error).contains("is no longer polled"), "{error:?}");
    // A cluster that is gained again starts without what was known of it.
    fixture.is_owned.store(true, Relaxed);
    assert_eq!(state(&fixture.view()), "unknown");
}

#[tokio::test(start_paused = true)]
async fn batch_can_use_a_cluster_of_another_replica_to_its_end() {
    let fixture = Fixture::known(&["n-0"]).await;
    let held = fixture.clusters.hold(&key("ns")).unwrap();
    fixture.is_owned.store(false, Relaxed);
    advance(20).await;
    assert!(held.get_node("n-0").await.unwrap().is_some());
    assert!(is_known(&held.list_nodes_live().await));
    drop(held);
    advance(2).await;
    fixture.slurm.take_requests();
    advance(60).await;
    assert_eq!(fixture.requests(), Vec::<String>::new());
}
