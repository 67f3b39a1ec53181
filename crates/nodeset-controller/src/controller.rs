//! Reconciles NodeSets, one at a time: observes, plans, applies children, starts the planned writes in the background and
//! writes the status. No reconcile waits for Slurm or for a batch.

mod mappers;
mod node_watch;
mod ownership;
mod pod_watch;
mod status_fence;
mod watches;

use crate::coordination::{Backend, Coordination, Credentials};
use crate::events::{Published, condition_events, plan_events};
use crate::execute::{Bases, Executor, PlannedWrites, apply_children};
use crate::mirror_runner::MirrorRunner;
use crate::observe::{Sources, observe};
use crate::plan::{PodMirror, plan};
use crate::runner::Runner;
use crate::slurm::ClusterKey;
use crate::status::{postpone, status, status_changes_in};
use crate::timing::{
    FOREIGN_STATUS_RETRY, METADATA_CHECK, POD_LIST_RETRY, RECONCILE_PAUSE, STATUS_PAUSE, remaining,
};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use node_watch::NodeWatch;
use operator_runtime::{ComponentError, ObjectKey, PerObject, Requeued, Runtime, Scope, apply, since_boot};
pub use ownership::follow;
#[cfg(test)]
pub use pod_watch::foreign_pods;
use slinky_api::v1beta1::{NodeSet, NodeSetStatus};
use slurm_rest::Clock;
use status_fence::StatusFence;
use std::sync::Arc;
use std::time::Duration;
use tracing::instrument;

/// Context of a reconcile.
pub struct Context {
    scope: Scope,
    sources: Arc<Sources>,
    runner: Arc<Runner>,
    mirrors: Arc<MirrorRunner>,
    nodesets: PerObject<NodeSetState>,
    clock: Clock,
}

/// State of a NodeSet that is kept between reconciles.
#[derive(Default)]
struct NodeSetState {
    /// When the last successful reconcile ended.
    reconciled: Option<Timestamp>,
    /// When the status was last written.
    status_written: Option<Timestamp>,
    /// The status that this replica knows to be its own.
    status_fence: StatusFence,
    /// Operations that were announced as Events and are not finished.
    published: Published,
}

/// Starts the controller in every namespace that is watched. `propagated_conditions` are the types of node conditions that
/// explain a cordon.
pub async fn start(
    runtime: Runtime,
    backend: Backend,
    credentials: Credentials,
    propagated_conditions: Vec<String>,
) -> anyhow::Result<()> {
    let coordination = Coordination::start(&runtime, backend, credentials)?;
    let propagated_conditions: Arc<[String]> = propagated_conditions.into();
    let (nodes, node_changes) = NodeWatch::new(&runtime, propagated_conditions.clone());
    let run_in = |scope| run(scope, nodes.clone(), coordination.clone(), propagated_conditions.clone());
    let forward = async {
        tokio::select! {
            () = nodes.forward(node_changes) => {}
            () = runtime.shutdown() => {}
        }
        Ok(())
    };
    // In this order: every scope subscribes when it is first polled, and misses no change.
    tokio::try_join!(runtime.for_each_scope(run_in), forward).map(drop)
}

async fn run(
    scope: Scope,
    nodes: NodeWatch,
    coordination: Coordination,
    propagated_conditions: Arc<[String]>,
) -> anyhow::Result<()> {
    let bases = Arc::new(Bases::default());
    let (sources, watches) =
        watches::watch(&scope, &nodes, propagated_conditions, bases.clone(), coordination.clone(), now);
    let sources = Arc::new(sources);
    let stopping = scope.clone();
    let (enqueue, finished_runs) = unbounded();
    let executor = Executor {
        client: scope.no_retry_client(),
        clusters: sources.clusters.clone(),
        coordination,
        clock: Arc::new(since_boot),
        is_stopping: Box::new(move || stopping.is_shutting_down()),
        bases,
    };
    let context = Arc::new(Context::new(scope.clone(), sources.clone(), executor, &enqueue, Arc::new(now)));
    let forgetful = context.clone();
    let on_change = move |nodeset: &NodeSet| forgetful.forget_if_gone(nodeset);
    let controller = watches.into_controller(&sources, finished_runs, on_change);
    let following = context.clone();
    tokio::select! {
        () = scope.run_controller(controller, reconcile, context.clone()) => {}
        () = follow(&following, &enqueue) => {}
    }
    context.finish().await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[instrument(skip_all, fields(namespace = nodeset.namespace(), name = nodeset.name_any()))]
async fn reconcile(nodeset: Arc<NodeSet>, context: Arc<Context>) -> Result<Action, Requeued<ComponentError>> {
    let requeue_after = reconcile_owned(nodeset, context).await?;
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
}

/// Reconciles a NodeSet, unless another replica owns it or it was reconciled a moment ago; returns when to do so again
/// without a change.
pub async fn reconcile_owned(
    nodeset: Arc<NodeSet>,
    context: Arc<Context>,
) -> Result<Option<Duration>, Requeued<ComponentError>> {
    if !context.coordination().owns(&nodeset) {
        return Ok(None);
    }
    if !context.sources.pods.includes(&nodeset) {
        return Ok(Some(POD_LIST_RETRY));
    }
    context.coordination().take_up(ClusterKey::of(&nodeset));
    let reconciled = context.nodesets.with(nodeset.as_ref(), |state| state.reconciled);
    if let Some(left) = remaining(RECONCILE_PAUSE, reconciled, (context.clock)()) {
        return Ok(Some(left));
    }
    let requeue_after = converge(nodeset.clone(), context.clone()).await;
    // After a failure the next reconcile is not skipped: a skipped one would count as a success and reset the backoff.
    let reconciled = requeue_after.is_ok().then(|| (context.clock)());
    context.nodesets.with(nodeset.as_ref(), |state| state.reconciled = reconciled);
    context.forget_if_gone(&nodeset);
    requeue_after
}

async fn converge(
    nodeset: Arc<NodeSet>,
    context: Arc<Context>,
) -> Result<Option<Duration>, Requeued<ComponentError>> {
    let (sources, executor) = (&context.sources, context.runner.executor());
    let now = (context.clock)();
    // Before the cache is read: what it has seen by now is part of what is read.
    let seen = executor.bases.seen(&nodeset.uid().unwrap_or_default());
    let observed = observe(&nodeset, sources).await;
    // Another replica may have become the owner, and the pods may have left the cache.
    if !sources.pods.includes(&nodeset) {
        return Ok(Some(POD_LIST_RETRY));
    }
    let mut plan = plan(&observed, now);
    let children = plan.children.take();
    let children = apply_children(&plan, children, &observed, &context.scope).await;
    let events =
        context.nodesets.with(nodeset.as_ref(), |state| plan_events(&observed, &plan, &mut state.published));
    for event in events {
        context.scope.events().publish(nodeset.as_ref(), event);
    }
    let next_writes = context.runner.start(PlannedWrites::of(&observed, &plan), seen);
    let mut execution = context.runner.last_execution(&nodeset);
    let failed_mirrors = context.mirrors.last_failures(&nodeset);
    execution.errors.extend(failed_mirrors.into_iter().map(|failure| (failure.category, failure.message)));
    let status = status(&observed, &plan, &execution, now);
    let mut mirrors = std::mem::take(&mut plan.pod_mirrors);
    if !context.coordination().ownership().is_joined() {
        mirrors.iter_mut().for_each(PodMirror::keep_protection);
        mirrors.retain(|mirror| !mirror.is_empty());
    }
    context.mirrors.start(&nodeset, mirrors);
    let status_written = context.write_status(&nodeset, &status, now).await;
    let postponed_status = status_written.as_ref().ok().copied().flatten();
    let metadata_check = (plan.metadata.is_some() && children.is_ok()).then_some(METADATA_CHECK);
    let requeue_after = [
        plan.requeue_after,
        next_writes,
        postponed_status,
        metadata_check,
        status_changes_in(&observed, &plan, &status, now),
    ];
    let requeue_after = requeue_after.into_iter().flatten().min();
    children.map_err(|error| Requeued::new(error, requeue_after))?;
    status_written.map_err(|error| Requeued::new(error, requeue_after))?;
    Ok(requeue_after)
}

impl Context {
    /// A context whose background runs enqueue NodeSets through `enqueue`.
    pub fn new(
        scope: Scope,
        sources: Arc<Sources>,
        executor: Executor,
        enqueue: &UnboundedSender<ObjectRef<NodeSet>>,
        clock: Clock,
    ) -> Self {
        let coordination = executor.coordination.clone();
        let mirrors = MirrorRunner::new(scope.clone(), sources.clone(), coordination, enqueue.clone());
        let runner = Runner::new(scope.clone(), sources.clone(), executor, enqueue.clone(), clock.clone());
        let (runner, mirrors) = (Arc::new(runner), Arc::new(mirrors));
        Self { scope, sources, runner, mirrors, nodesets: PerObject::default(), clock }
    }

    /// Waits for the end of the background runs, after which no effect is sent any more. To be called after shutdown.
    pub async fn finish(&self) {
        self.runner.finish().await;
    }

    /// Writes the status and publishes its condition transitions, unless the write is postponed; returns for how long.
    async fn write_status(
        &self,
        nodeset: &Arc<NodeSet>,
        status: &NodeSetStatus,
        now: Timestamp,
    ) -> Result<Option<Duration>, apply::Error> {
        let is_joined = self.coordination().ownership().is_joined();
        let (written, may_write) = self.nodesets.with(nodeset.as_ref(), |state| {
            (state.status_written, state.status_fence.may_write(nodeset, is_joined))
        });
        if !may_write {
            return Ok(Some(FOREIGN_STATUS_RETRY));
        }
        let (nodeset, current) = (nodeset.as_ref(), nodeset.status.as_ref());
        let postponed = postpone(written, current, status, now);
        if postponed.is_none() {
            match self.scope.applier().apply_next_status(nodeset, status).await? {
                apply::StatusWrite::Written => self.nodesets.with(nodeset, |state| {
                    state.status_written = Some(now);
                    state.status_fence.written(status);
                }),
                apply::StatusWrite::Unchanged => {}
                // Another replica wrote: the next plan starts from its status.
                apply::StatusWrite::Outdated => return Ok(Some(STATUS_PAUSE)),
            }
            for event in condition_events(current, status) {
                self.scope.events().publish_change(nodeset, event);
            }
        }
        Ok(postponed)
    }

    fn coordination(&self) -> &Coordination {
        &self.runner.executor().coordination
    }

    /// Drops the state of a NodeSet if it is deleted, or another replica owns it.
    pub fn forget_if_gone(&self, nodeset: &NodeSet) {
        if self.runner.forget_if_gone(nodeset) {
            self.mirrors.forget_if_gone(nodeset);
            let (is_deleted, key) = (self.sources.is_deleted(nodeset), ClusterKey::of(nodeset));
            if self.sources.is_name_free(nodeset) || !is_deleted {
                self.nodesets.forget(&ObjectKey::of(nodeset));
            }
            // The NodeSets of others change all the time: only the last one of a cluster is worth a look at all.
            if is_deleted && !self.sources.nodesets.state().iter().any(|other| ClusterKey::of(other) == key) {
                self.coordination().give_up(&key);
            }
        }
    }
}
