//! Watches NodeSets and everything that their workers depend on, and reconciles one NodeSet at a time. What needs a batch
//! or word with Slurm is done in the background: no reconcile waits for Slurm.

mod mappers;

use crate::announce::announce;
use crate::cache::{LivePods, NodeCache, PodCache, SecretHashes, trim_claim, trim_pod, trim_revision};
use crate::children::apply_children;
use crate::execute::{Bases, Edges, Failure, Report, Verdict, mirror_pods};
use crate::observe::observe;
use crate::plan::plan;
use crate::slurm::{ClusterKey, Clusters};
use crate::status::{again, is_good, news, put_off, status};
use crate::work::{Order, Readiness, carry_out, readiness};
use crate::world::{World, left_of};
use anyhow::Context as _;
use expectations::{Embedded, Epoch, Limits, Parameters, Predecessor, ReplicaId, Timing};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller as Runner, watcher};
use kube::{Api, ResourceExt};
use mappers::Members;
use operator_runtime::backoff::ErrorBackoff;
use operator_runtime::error::chain;
use operator_runtime::events::{EventType, NewEvent};
use operator_runtime::{
    Class, Classify, ObjectKey, PerObject, Runtime, Scope, StepErrors, apply, changed_by, changed_objects,
    spec_changes,
};
use slinky_api::labels::{APP_NAME, App};
use slinky_api::v1beta1::{Controller, NodeSet, NodeSetStatus, RestApi};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tracing::instrument;

/// When to look again although nothing happened: in case that an event was lost.
const RESYNC: Duration = Duration::from_mins(10);
/// How long passes over one NodeSet keep apart: pods that change one after the other then make work for one pass, not for
/// one each. Nobody sees the difference, and a thousand pods cost a fraction.
const PASS_PAUSE: Duration = Duration::from_millis(200);
/// How long to wait after a batch before the next one of the same NodeSet: pods that become ready one after the other then
/// make work for one batch, not for one each.
const BATCH_PAUSE: Duration = Duration::from_millis(500);

/// How long work for a NodeSet waits after a batch of which a part failed: the rest goes on.
const PARTIAL_PAUSE: Duration = Duration::from_secs(1);
/// The longest that it waits if nothing could be done. Somebody may have mended the cause, and nobody tells us; and there
/// may be other things to do by then.
const LONGEST_HOLD: Duration = Duration::from_secs(10);
/// When to see whether a NodeSet has the finalizers that it was to get: our own write may have been the one that another
/// one of ours lost against, and that brings no pass.
const HOLD_PAUSE: Duration = Duration::from_secs(1);

/// What a reconcile works with.
struct Context {
    scope: Scope,
    world: Arc<World>,
    /// Where NodeSets are named whose work in the background ended.
    wake: UnboundedSender<ObjectRef<NodeSet>>,
    /// How often work in the background failed.
    backoff: ErrorBackoff,
    /// How often pods could not be told what to say.
    mirror_backoff: ErrorBackoff,
}

/// Why a NodeSet is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Children could not be made.
    #[error(transparent)]
    Steps(#[from] StepErrors),
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] apply::Error),
}

/// Why a NodeSet is not what it should be, and when there is something else to do for it.
#[derive(Debug, thiserror::Error)]
#[error("{}", chain(trouble))]
pub struct Error {
    trouble: Trouble,
    again: Duration,
}

impl Classify for Error {
    fn class(&self) -> Class {
        match &self.trouble {
            Trouble::Steps(error) => error.class(),
            Trouble::Status(error) => error.class(),
        }
    }

    fn category(&self) -> &'static str {
        match &self.trouble {
            Trouble::Steps(error) => error.category(),
            Trouble::Status(error) => error.category(),
        }
    }

    fn requeue_after(&self) -> Option<Duration> {
        Some(self.again)
    }
}

/// What the watched namespaces share.
#[derive(Clone)]
struct Process {
    expectations: Arc<Embedded>,
    replica: ReplicaId,
    batches: Arc<AtomicU64>,
    propagated_conditions: Arc<[String]>,
}

/// Starts the controller in every namespace that is watched. `propagated_conditions` are the types of conditions of
/// Kubernetes nodes that explain a cordon.
pub async fn start(runtime: Runtime, propagated_conditions: Vec<String>) -> anyhow::Result<()> {
    let replica = ReplicaId::from(format!("{}_{:08x}", runtime.instance(), rand::random::<u32>()));
    let process = Process {
        expectations: Arc::new(embedded(&replica)?),
        replica,
        batches: Arc::default(),
        propagated_conditions: propagated_conditions.into(),
    };
    runtime.for_each_scope(|scope| run(scope, process.clone())).await
}

/// The expectations of the one replica that is active.
fn embedded(replica: &ReplicaId) -> anyhow::Result<Embedded> {
    let parameters = Parameters {
        epoch: Epoch::from(format!("{:016x}", rand::random::<u64>())),
        timing: Timing::default(),
        limits: Limits::default(),
        predecessor: Predecessor::Unknown,
    };
    Embedded::new(parameters, Arc::new(since_boot), replica.clone())
        .context("the constants of batches do not fit")
}

/// The time since the machine was started, sleep included.
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

async fn run(scope: Scope, process: Process) -> anyhow::Result<()> {
    let Process { expectations, replica, batches, propagated_conditions } = process;
    let workers = || watcher::Config::default().labels(&format!("{APP_NAME}={}", NodeSet::NAME));
    let everything = watcher::Config::default;
    let (nodesets, nodeset_changes) = scope.cache::<NodeSet>(everything());
    let (controllers, controller_changes) = scope.cache::<Controller>(everything());
    let (restapis, restapi_changes) = scope.cache::<RestApi>(everything());
    let (pod_store, pod_events) = scope.cache_of(scope.api(), workers(), trim_pod);
    let (node_store, node_events) = scope.cache_of(Api::all(scope.client()), everything(), NodeCache::trim);
    let (revisions, revision_events) = scope.cache_of(scope.api(), everything(), trim_revision);
    let (claims, claim_events) = scope.cache_of(scope.api(), workers(), trim_claim);
    let (services, service_changes) = scope.cache(everything());
    let (budgets, budget_changes) = scope.cache(everything());
    let (configs, config_changes) = scope.cache(workers());
    let (pods, nodes) =
        (PodCache::new(pod_store.clone()), NodeCache::new(node_store.clone(), propagated_conditions.clone()));
    let clusters = Clusters::start(&scope, controllers.clone(), restapis, Arc::new(now));
    let bases = Arc::new(Bases::default());
    let members =
        Members { nodesets: nodesets.clone(), controllers: controllers.clone(), clusters: clusters.clone() };
    let (wake, woken) = unbounded();
    let pod_changes = {
        let (pods, bases) = (pods.clone(), bases.clone());
        let observed = pod_events.inspect_ok(move |event| {
            pods.observe(event);
            bases.observe(event);
        });
        changed_objects(pod_store, observed)
    };
    let node_changes =
        mappers::node_changes(changed_objects(node_store.clone(), node_events), node_store, nodes.clone());
    let secret_hashes = SecretHashes::default();
    let secret_changes = mappers::secret_changes(scope.metadata_events(everything()), secret_hashes.clone());
    let stopping = scope.clone();
    let edges = Edges {
        client: scope.no_retry_client(),
        clusters: clusters.clone(),
        expectations,
        replica,
        batches,
        clock: Arc::new(since_boot),
        is_stopping: Box::new(move || stopping.is_shutting_down()),
        bases,
    };
    let world = World {
        nodesets,
        controllers,
        pods,
        fresh_pods: LivePods::new(scope.client()),
        nodes,
        revisions,
        claims,
        services,
        budgets,
        configs,
        secret_hashes,
        clusters,
        client: scope.client(),
        edges,
        memory: PerObject::default(),
        cluster_domain: scope.cluster_domain(),
        propagated_conditions,
    };
    let context = Arc::new(Context {
        scope: scope.clone(),
        world: Arc::new(world),
        wake,
        backoff: ErrorBackoff::default(),
        mirror_backoff: ErrorBackoff::default(),
    });
    let nodeset_changes = {
        let context = context.clone();
        let forget = move |nodeset: &NodeSet| {
            context.forget_gone(nodeset);
        };
        nodeset_changes.inspect_ok(forget).boxed()
    };
    let World { nodesets, controllers, pods, claims, revisions, .. } = context.world.as_ref();
    let controller = Runner::for_stream(wishes(nodeset_changes, nodesets.clone()), nodesets.clone())
        .watches_stream(pod_changes, |pod| mappers::of_pod(&pod))
        .watches_stream(node_changes, mappers::of_node(nodesets.clone(), pods.clone()))
        .watches_stream(changed_objects(claims.clone(), claim_events), |claim| mappers::of_label(&claim))
        .watches_stream(service_changes, |service| mappers::of_owners(&service))
        .watches_stream(budget_changes, |budget| mappers::of_owners(&budget))
        .watches_stream(changed_objects(revisions.clone(), revision_events), |revision| {
            mappers::of_owners(&revision)
        })
        .owns_stream(config_changes)
        .watches_stream(spec_changes(controller_changes, controllers.clone()), members.of_controller())
        .watches_stream(restapi_changes, members.of_restapi())
        .watches_stream(secret_changes, members.of_secret())
        .reconcile_on(members.of_slurm())
        .reconcile_on(woken);
    scope.run_controller(controller, reconcile, context).await;
    Ok(())
}

/// Changes of NodeSets that somebody wants something by: not those of their status.
fn wishes(
    changes: BoxStream<'static, watcher::Result<NodeSet>>,
    nodesets: Store<NodeSet>,
) -> BoxStream<'static, watcher::Result<NodeSet>> {
    changed_by(changes, nodesets, |nodeset| {
        let metadata = &nodeset.metadata;
        (
            metadata.generation,
            metadata.labels.clone(),
            metadata.annotations.clone(),
            metadata.finalizers.clone(),
        )
    })
}

#[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

#[instrument(skip_all, fields(namespace = nodeset.namespace(), name = nodeset.name_any()))]
async fn reconcile(nodeset: Arc<NodeSet>, context: Arc<Context>) -> Result<Action, Error> {
    let passed = context.world.memory.with(nodeset.as_ref(), |memory| memory.passed);
    if let Some(left) = left_of(PASS_PAUSE, passed, now()) {
        return Ok(Action::requeue(left));
    }
    let action = pass(nodeset.clone(), context.clone()).await;
    // A pass that failed is not followed by one that is skipped: that would count as a success.
    let passed = action.is_ok().then(now);
    context.world.memory.with(nodeset.as_ref(), |memory| memory.passed = passed);
    context.forget_gone(&nodeset);
    action
}

async fn pass(nodeset: Arc<NodeSet>, context: Arc<Context>) -> Result<Action, Error> {
    let world = &context.world;
    if !world.edges.expectations.owns(&ClusterKey::of(&nodeset).to_string()) {
        return Ok(Action::await_change());
    }
    let now = now();
    // Before the cache is read: what it has seen until then is in what is read.
    let readiness = readiness(&nodeset, world);
    let observed = observe(&nodeset, world).await;
    let plan = plan(&observed, now);
    let children = apply_children(&observed, &plan, world, &context.scope).await;
    let namespace = nodeset.namespace().unwrap_or_default();
    let unmirrored = mirror_pods(&plan.pod_mirrors, &world.client, &namespace).await;
    let begun =
        world.memory.with(nodeset.as_ref(), |memory| announce(&observed, &plan, &mut memory.announced));
    for notice in begun {
        context.scope.events().publish(nodeset.as_ref(), notice);
    }
    let ordered = context.order(Order::of(&observed, &plan), readiness);
    let mut effects = world.memory.with(nodeset.as_ref(), |memory| memory.effects.clone());
    let unsaid = context.say_again(&nodeset, &unmirrored);
    effects.errors.extend(unmirrored.into_iter().map(|failure| (failure.category, failure.message)));
    let status = status(&observed, &plan, &effects, now);
    let told = context.tell(&nodeset, &status, now).await;
    let later = told.as_ref().ok().copied().flatten();
    let held = (plan.metadata.is_some() && children.is_ok()).then_some(HOLD_PAUSE);
    let again = [plan.requeue_after, ordered, unsaid, later, held, again(&observed, &plan, &status, now)];
    let again = again.into_iter().flatten().fold(RESYNC, Duration::min);
    let trouble = children.map_err(Trouble::from).err().or_else(|| told.err().map(Trouble::from));
    match trouble {
        Some(trouble) => Err(Error { trouble, again }),
        None => Ok(Action::requeue(again)),
    }
}

impl Context {
    /// Has an order carried out in the background, unless one of this NodeSet is: its end brings the next pass. Says when
    /// to try again if it cannot be now.
    fn order(self: &Arc<Self>, order: Option<Order>, readiness: Readiness) -> Option<Duration> {
        let order = order?;
        let basis = match readiness {
            Readiness::Now(basis) => basis,
            Readiness::Later(left) => return Some(left),
        };
        let nodeset = order.nodeset.clone();
        let busy =
            self.world.memory.with(nodeset.as_ref(), |memory| std::mem::replace(&mut memory.busy, true));
        if !busy {
            let context = self.clone();
            self.scope.spawn("batch", async move {
                let report = carry_out(order, basis, &context.world, &now).await;
                context.conclude(&nodeset, report).await;
            });
        }
        None
    }

    /// When to try again to have pods say what they should.
    fn say_again(&self, nodeset: &NodeSet, unmirrored: &[Failure]) -> Option<Duration> {
        if unmirrored.is_empty() {
            self.mirror_backoff.forget(&ObjectKey::of(nodeset));
            return None;
        }
        Some(self.mirror_backoff.next(nodeset))
    }

    /// Writes the status, unless it can wait, and tells what is new in it. Says for how long it waits.
    async fn tell(
        &self,
        nodeset: &NodeSet,
        status: &NodeSetStatus,
        now: Timestamp,
    ) -> Result<Option<Duration>, apply::Error> {
        let memory = &self.world.memory;
        let written = memory.with(nodeset, |memory| memory.status_written);
        let later = put_off(written, nodeset.status.as_ref(), status, now);
        if later.is_none() {
            let written = self.scope.applier().apply_status(nodeset, status).await?;
            if matches!(written, apply::StatusWrite::Written) {
                memory.with(nodeset, |memory| memory.status_written = Some(now));
            }
            publish_news(nodeset, status, &self.scope);
        }
        Ok(later)
    }

    /// Drops what is remembered of a NodeSet if it is gone; whether it is.
    fn forget_gone(&self, nodeset: &NodeSet) -> bool {
        let is_gone = self.world.forget_gone(nodeset);
        if is_gone {
            self.backoff.forget(&ObjectKey::of(nodeset));
            self.mirror_backoff.forget(&ObjectKey::of(nodeset));
        }
        is_gone
    }

    /// Tells what an order came to, and when to look again.
    async fn conclude(&self, nodeset: &NodeSet, report: Report) {
        for notice in report.notices() {
            self.scope.events().publish(nodeset, notice);
        }
        if matches!(report.verdict, Verdict::Performed { .. }) {
            self.pause(BATCH_PAUSE).await;
        }
        if self.forget_gone(nodeset) {
            return;
        }
        // What failed, or was decided on an old view, is left alone for a while, whatever happens meanwhile.
        let failed = !report.failures.is_empty()
            || matches!(report.verdict, Verdict::Unavailable(_) | Verdict::Overtaken);
        if failed && report.done.is_empty() {
            self.pause(self.backoff.next(nodeset).min(LONGEST_HOLD)).await;
        } else if failed {
            self.pause(PARTIAL_PAUSE).await;
        } else {
            self.backoff.forget(&ObjectKey::of(nodeset));
        }
        if self.forget_gone(nodeset) {
            return;
        }
        self.world.memory.with(nodeset, |memory| memory.busy = false);
        let delay = report.again.filter(|_| !failed);
        self.pause(delay.unwrap_or_default()).await;
        if self.forget_gone(nodeset) {
            return;
        }
        // Nobody listens any more when the process ends.
        let _ = self.wake.unbounded_send(ObjectRef::from_obj(nodeset));
    }

    /// Lets time pass, unless the process is to end.
    async fn pause(&self, duration: Duration) {
        tokio::select! {
            () = tokio::time::sleep(duration) => {}
            () = self.scope.shutdown() => {}
        }
    }
}

/// Tells of conditions that changed.
fn publish_news(nodeset: &NodeSet, status: &NodeSetStatus, scope: &Scope) {
    for condition in news(nodeset.status.as_ref(), status) {
        let notice = NewEvent {
            type_: if is_good(condition) { EventType::Normal } else { EventType::Warning },
            reason: condition.reason.clone(),
            action: condition.type_.clone(),
            note: condition.message.clone(),
            related: None,
        };
        scope.events().publish_change(nodeset, notice);
    }
}
