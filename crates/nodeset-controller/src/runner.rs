//! Runs the planned writes of NodeSets in the background, one set at a time per NodeSet, so that no reconcile waits for a
//! batch or for Slurm. When a run ends it is reported, and the NodeSet is enqueued after a pause.

mod refusals;
mod service_wait;

use crate::execute::{BatchOutcome, Execution, Executor, PlannedWrites, Report, SeenByCache, wait_message};
use crate::observe::{Sources, observe_live};
use crate::plan::plan;
use crate::timing::{BATCH_PAUSE, LONGEST_FAILURE_PAUSE, NOT_OWNER_PAUSE, PARTIAL_FAILURE_PAUSE};
use expectations::Basis;
use futures::channel::mpsc::UnboundedSender;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use operator_runtime::backoff::ErrorBackoff;
use operator_runtime::{ObjectKey, PerObject, Scope, jitter};
use refusals::Refusals;
use service_wait::ServiceWait;
use slinky_api::v1beta1::NodeSet;
use slurm_rest::Clock;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// How often the view is read live in a row before the rest is left to the next reconcile.
const LIVE_VIEWS: usize = 2;

/// Runs planned writes in the background.
pub struct Runner {
    scope: Scope,
    sources: Arc<Sources>,
    executor: Executor,
    runs: PerObject<Run>,
    /// Consecutive runs that failed.
    backoff: ErrorBackoff,
    /// Enqueues the NodeSets whose run ended.
    enqueue: UnboundedSender<ObjectRef<NodeSet>>,
    clock: Clock,
    /// Wakes the runs that pause because the expectations service did not answer.
    service_is_back: Notify,
    /// The active runs.
    tracker: TaskTracker,
}

/// The state of the background run of one NodeSet.
#[derive(Default)]
struct Run {
    /// Whether a run is active.
    active: bool,
    /// What the last run came to.
    last: Execution,
    /// The writes that were refused and pause.
    refusals: Refusals,
    /// What the expectations service asked for.
    wait: Option<ServiceWait>,
}

/// Executes planned writes; where the expectations service asks for a fresh view, plans again from a live one. `clock` gives
/// the time of these plans.
pub async fn execute_planned(
    mut writes: PlannedWrites,
    sources: &Sources,
    executor: &Executor,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Report {
    let nodeset = writes.nodeset.clone();
    let mut views = 0;
    loop {
        let mut report = executor.perform(writes).await;
        if let BatchOutcome::NeedFresh(basis) = report.outcome.clone() {
            let replanned =
                if views < LIVE_VIEWS { plan_live(&nodeset, basis, sources, clock).await } else { Ok(None) };
            views += 1;
            match replanned {
                Ok(Some(replanned)) => {
                    writes = replanned;
                    continue;
                }
                Ok(None) => report.requeue_soon(),
                Err(error) => report.record_failed_view(&error),
            }
        }
        if views > 0 && report.outcome == BatchOutcome::Idle {
            report.outcome = BatchOutcome::Outdated;
        }
        record_failed_pods(&nodeset, &report, sources, clock());
        return report;
    }
}

/// Plans from a live view; `None` if the NodeSet is deleted.
async fn plan_live(
    nodeset: &NodeSet,
    basis: Basis,
    sources: &Sources,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Result<Option<PlannedWrites>, Arc<kube::Error>> {
    let Some(observed) = observe_live(nodeset, sources).await? else { return Ok(None) };
    let plan = plan(&observed, clock());
    let nodeset = observed.nodeset;
    let (effects, node_mirrors) = (plan.effects, plan.node_mirrors);
    Ok(Some(PlannedWrites { nodeset, effects, node_mirrors, basis: Some(basis) }))
}

/// Counts failed and unregistered pods that were deleted against their names: the next pod of the name backs off.
fn record_failed_pods(nodeset: &NodeSet, report: &Report, sources: &Sources, now: Timestamp) {
    if !sources.is_deleted(nodeset) {
        sources.pod_backoff.with(nodeset, |backoff| {
            report.deleted_failed_pods.iter().for_each(|pod| backoff.record_failure(pod, now));
            report.deleted_unregistered_pods.iter().for_each(|pod| backoff.record_unregistered(pod, now));
        });
    }
}

impl Runner {
    /// A runner that enqueues NodeSets through `enqueue` when their run ended.
    pub fn new(
        scope: Scope,
        sources: Arc<Sources>,
        executor: Executor,
        enqueue: UnboundedSender<ObjectRef<NodeSet>>,
        clock: Clock,
    ) -> Self {
        let (runs, backoff) = (PerObject::default(), ErrorBackoff::default());
        let (service_is_back, tracker) = (Notify::new(), TaskTracker::new());
        Self { scope, sources, executor, runs, backoff, enqueue, clock, service_is_back, tracker }
    }

    /// What the writes go through.
    pub const fn executor(&self) -> &Executor {
        &self.executor
    }

    /// What the last run of a NodeSet came to, with the errors of writes that were refused before and pause.
    pub fn last_execution(&self, nodeset: &NodeSet) -> Execution {
        self.runs.with(nodeset, |run| {
            let mut last = run.last.clone();
            let held = run.refusals.errors().filter(|error| !last.errors.contains(error));
            let held: Vec<_> = held.cloned().collect();
            last.errors.extend(held);
            let wait = run.wait.filter(|wait| wait.left(Instant::now()).is_some());
            last.waiting = last.waiting.or_else(|| Some(wait_message(wait?.reason).to_owned()));
            last
        })
    }

    /// To be called when this replica has joined the expectations service: it may grant what it did not before.
    pub fn resume(&self) {
        self.runs.for_each(|run| run.wait = None);
        self.service_is_back.notify_waiters();
    }

    /// Waits for the end of the active runs, after which no write is sent any more. To be called after shutdown.
    pub async fn finish(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Starts a run of writes that were planned from the cache, which had `seen` this much of the last batch. One that is
    /// active is not disturbed: its end enqueues the NodeSet. Returns when to try again if the cache is behind, writes that
    /// were refused pause, or the expectations service asked to wait.
    pub fn start(self: &Arc<Self>, writes: Option<PlannedWrites>, seen: SeenByCache) -> Option<Duration> {
        let mut writes = writes?;
        let began = Instant::now();
        let nodeset = writes.nodeset.clone();
        let held = self.runs.with(nodeset.as_ref(), |run| run.hold_back(&mut writes, began));
        if writes.effects.is_empty() && writes.node_mirrors.is_empty() {
            return held;
        }
        match seen.basis() {
            Ok(basis) => writes.basis = basis,
            Err(left) => return Some(left),
        }
        let was_active = self.runs.with(nodeset.as_ref(), |run| std::mem::replace(&mut run.active, true));
        if !was_active {
            let (runner, token) = (self.clone(), self.tracker.token());
            self.scope.spawn("batch", async move {
                let _token = token;
                let report =
                    execute_planned(writes, &runner.sources, &runner.executor, runner.clock.as_ref()).await;
                runner.record_obstacles(&nodeset, &report, began);
                runner.conclude(&nodeset, &report).await;
            });
        }
        held
    }

    fn record_obstacles(&self, nodeset: &NodeSet, report: &Report, began: Instant) {
        if !self.sources.is_deleted(nodeset) {
            let now = Instant::now();
            self.runs.with(nodeset, |run| {
                run.refusals.record(report, began, now, jitter());
                run.wait = report.wait.map(|wait| ServiceWait::new(wait, now)).or(run.wait);
            });
        }
    }

    /// Publishes and records what a run came to, and enqueues the NodeSet after the pause that follows from it.
    async fn conclude(&self, nodeset: &NodeSet, report: &Report) {
        for event in report.events() {
            self.scope.events().publish(nodeset, event);
        }
        if !self.sources.is_deleted(nodeset) {
            self.runs.with(nodeset, |run| run.last = report.execution());
        }
        if matches!(report.outcome, BatchOutcome::Performed { .. }) {
            self.pause(BATCH_PAUSE).await;
        }
        if report.outcome == BatchOutcome::NotOwner {
            self.pause(NOT_OWNER_PAUSE).await;
        }
        // What failed, or was decided on a stale view, is not repeated for a while, whatever events arrive meanwhile.
        let failed = report.has_failed();
        let is_unavailable = matches!(report.outcome, BatchOutcome::Unavailable(_));
        tokio::select! {
            () = self.pause(self.failure_pause(nodeset, report)) => {}
            () = self.service_is_back.notified(), if is_unavailable => {}
        }
        self.runs.with(nodeset, |run| run.active = false);
        if self.forget_if_gone(nodeset) {
            return;
        }
        let delay = report.requeue_after.filter(|_| !failed);
        self.pause(delay.unwrap_or_default()).await;
        if !self.forget_if_gone(nodeset) {
            // The receiver is dropped when the process ends.
            let _ = self.enqueue.unbounded_send(ObjectRef::from_obj(nodeset));
        }
    }

    fn failure_pause(&self, nodeset: &NodeSet, report: &Report) -> Duration {
        if !report.has_failed() {
            self.backoff.forget(&ObjectKey::of(nodeset));
            Duration::ZERO
        } else if report.done.is_empty() {
            self.backoff.next(nodeset).min(LONGEST_FAILURE_PAUSE)
        } else {
            PARTIAL_FAILURE_PAUSE
        }
    }

    /// Drops the state of a NodeSet if it is deleted, or another replica owns it; returns whether that is so. The state of a
    /// successor of the same name stays, and so does that of an active run until its end.
    pub fn forget_if_gone(&self, nodeset: &NodeSet) -> bool {
        let is_gone = forget_if_gone(nodeset, &self.sources, &self.executor, &self.runs);
        if is_gone {
            self.backoff.forget(&ObjectKey::of(nodeset));
        }
        is_gone
    }

    /// Sleeps, unless the process is shutting down.
    async fn pause(&self, duration: Duration) {
        tokio::select! {
            () = tokio::time::sleep(duration) => {}
            () = self.scope.shutdown() => {}
        }
    }
}

impl Run {
    /// Removes the writes that have to wait; returns when the first of them may be sent.
    fn hold_back(&mut self, writes: &mut PlannedWrites, now: Instant) -> Option<Duration> {
        let refused = self.refusals.hold_back(writes, now);
        let waiting = self.wait.and_then(|wait| wait.hold_back(writes, now));
        [refused, waiting].into_iter().flatten().min()
    }
}

/// Drops the state of a NodeSet if it is deleted, or another replica owns it; returns whether that is so.
fn forget_if_gone(nodeset: &NodeSet, sources: &Sources, executor: &Executor, runs: &PerObject<Run>) -> bool {
    let is_deleted = sources.is_deleted(nodeset);
    let is_lost = !is_deleted && !executor.coordination.owns(nodeset);
    // The batch of an active run goes on to its end; the run's end drops the state.
    let is_over = is_lost && !runs.with(nodeset, |run| run.active);
    if is_deleted || is_over {
        executor.bases.forget(&nodeset.uid().unwrap_or_default());
    }
    if is_over || is_deleted && sources.is_name_free(nodeset) {
        let key = ObjectKey::of(nodeset);
        runs.forget(&key);
        sources.pod_backoff.forget(&key);
    }
    is_deleted || is_lost
}

#[cfg(test)]
mod tests;
