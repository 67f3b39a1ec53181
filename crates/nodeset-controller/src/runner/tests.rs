//! Background runs against an in-memory API server and Slurm, under paused time.

use super::*;
use crate::fixture::{self, Reached};
use crate::plan::Effect;
use expectations::{
    Answer, BatchId, Begin, Expectations, Limits, Ownership, Predecessor, Timing, Unavailable, Wait,
    WaitReason,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use slurm_fake::FakeSlurm;
use test_support::api_model::{ApiModel, Failure, Fate, Verb};
use tokio::time::Instant;

/// Keeps the caches filled.
struct CacheWriters {
    nodesets: Writer<NodeSet>,
    _reached: Reached,
}

/// A NodeSet at an API server, and its Slurm cluster.
fn fixture(api: &ApiModel) -> (Sources, Executor, CacheWriters, Arc<NodeSet>) {
    let (slurm, began) = (FakeSlurm::new(), Instant::now());
    let clock: expectations::Clock = Arc::new(move || began.elapsed());
    #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
    let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
    let reached = fixture::reached(slurm.clone(), slurm.clock(), spawn);
    let service = fixture::embedded("r", Limits::default(), Predecessor::Settled, clock.clone());
    let executor = fixture::executor("r", api.client("operator"), reached.clusters.clone(), service, clock);
    let nodeset = api.put::<NodeSet>(fixture::nodeset(&json!({})));
    let nodeset: NodeSet = serde_json::from_value(Value::clone(&nodeset)).unwrap();
    let (nodesets, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Apply(nodeset.clone()));
    let sources = Sources { nodesets, ..fixture::sources(&executor, reached.controllers.clone()) };
    (sources, executor, CacheWriters { nodesets: writer, _reached: reached }, Arc::new(nodeset))
}

/// Writes that need a batch, without a basis: the expectations service asks for a fresh view.
fn writes(nodeset: &Arc<NodeSet>) -> PlannedWrites {
    let effects = vec![Effect::DeleteReservation("maint".to_owned())];
    PlannedWrites { nodeset: nodeset.clone(), effects, node_mirrors: vec![], basis: None }
}

#[tokio::test(start_paused = true)]
async fn failed_live_list_is_a_failure_that_backs_off() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (sources, executor, _writers, nodeset) = fixture(&api);
    api.on_request(|call| {
        if call.verb == Verb::List { Fate::Refused(Failure::InternalError) } else { Fate::Served }
    });
    let report = execute_planned(writes(&nodeset), &sources, &executor, &|| Timestamp::UNIX_EPOCH).await;
    assert!(report.has_failed());
    let execution = report.execution();
    let [(_, error)] = execution.errors.as_slice() else { panic!("{:?}", execution.errors) };
    assert!(error.starts_with("live list of the workers: "), "{error}");
    assert_eq!(execution.waiting.as_deref(), Some("a live list of the workers is needed"));
}

#[tokio::test(start_paused = true)]
async fn empty_plan_from_a_live_view_shows_that_the_cache_is_stale() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (sources, executor, _writers, nodeset) = fixture(&api);
    // Without a Controller every plan is empty, whatever the cache held.
    let report = execute_planned(writes(&nodeset), &sources, &executor, &|| Timestamp::UNIX_EPOCH).await;
    assert_eq!(report.outcome, BatchOutcome::Outdated);
    assert_eq!(report.execution().waiting.as_deref(), Some("the pod cache has not caught up"));
}

#[tokio::test(start_paused = true)]
async fn state_of_a_deleted_nodeset_is_dropped_and_that_of_its_successor_is_kept() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (sources, executor, mut writers, nodeset) = fixture(&api);
    let runs = PerObject::<Run>::default();
    let is_active = |nodeset: &NodeSet| runs.with(nodeset, |run| run.active);
    let forget = || forget_if_gone(&nodeset, &sources, &executor, &runs);
    runs.with(nodeset.as_ref(), |run| run.active = true);
    assert!(!forget() && is_active(&nodeset), "it exists");
    writers.nodesets.apply_watcher_event(&Event::Delete(nodeset.as_ref().clone()));
    assert!(forget() && !is_active(&nodeset));
    let mut successor = nodeset.as_ref().clone();
    successor.metadata.uid = Some("successor".to_owned());
    writers.nodesets.apply_watcher_event(&Event::Apply(successor.clone()));
    runs.with(&successor, |run| run.active = true);
    assert!(forget() && is_active(&successor));
}

#[tokio::test(start_paused = true)]
async fn run_of_a_deleted_nodeset_leaves_the_backoff_of_its_successor_alone() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (sources, executor, mut writers, nodeset) = fixture(&api);
    writers.nodesets.apply_watcher_event(&Event::Delete(nodeset.as_ref().clone()));
    api.remove::<NodeSet>("ns", "gpu");
    let mut successor = nodeset.as_ref().clone();
    successor.metadata.uid = Some("successor".to_owned());
    sources.pod_backoff.with(&successor, |backoff| backoff.record_failure("gpu-0", Timestamp::UNIX_EPOCH));
    execute_planned(writes(&nodeset), &sources, &executor, &|| Timestamp::UNIX_EPOCH).await;
    assert_eq!(sources.pod_backoff.with(&successor, |backoff| backoff.retry_times().len()), 1);
}

/// An expectations service that gives every cluster to another replica.
struct OwnedByAnother;

impl Expectations for OwnedByAnother {
    fn begin(&self, _: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        std::future::pending().boxed()
    }

    fn done(&self, _: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        std::future::pending().boxed()
    }

    fn ownership(&self) -> Ownership {
        let members = ["other".into()].into();
        Ownership::Shared { replica: "r".into(), members, epoch: Some("e".into()) }
    }

    fn ownership_changes(&self) -> BoxStream<'static, ()> {
        futures::stream::pending().boxed()
    }

    fn report_clusters(&self, _: Vec<String>) {}

    fn timing(&self) -> Timing {
        Timing::default()
    }
}

#[tokio::test(start_paused = true)]
async fn state_of_a_nodeset_of_another_replica_is_dropped_after_its_run() {
    let api = ApiModel::new(|| Timestamp::UNIX_EPOCH);
    let (sources, mut executor, _writers, nodeset) = fixture(&api);
    let runs = PerObject::<Run>::default();
    let failures = || sources.pod_backoff.with(nodeset.as_ref(), |backoff| backoff.retry_times().len());
    sources
        .pod_backoff
        .with(nodeset.as_ref(), |backoff| backoff.record_failure("gpu-0", Timestamp::UNIX_EPOCH));
    runs.with(nodeset.as_ref(), |run| run.active = true);
    assert!(!forget_if_gone(&nodeset, &sources, &executor, &runs), "this replica owns it");
    executor.coordination.expectations = Arc::new(OwnedByAnother);
    assert!(forget_if_gone(&nodeset, &sources, &executor, &runs));
    assert!(runs.with(nodeset.as_ref(), |run| run.active) && failures() == 1, "its run is active");
    runs.with(nodeset.as_ref(), |run| {
        run.active = false;
        run.wait = Some(ServiceWait::new(
            Wait { after: Duration::from_mins(1), reason: WaitReason::HalfOpen },
            Instant::now(),
        ));
    });
    assert!(forget_if_gone(&nodeset, &sources, &executor, &runs));
    assert!(runs.with(nodeset.as_ref(), |run| run.wait.is_none()) && failures() == 0);
}
