//! A process of the operator, from start to crash: everything that ships except watches, and the queue of kube's controller.

use super::gate::Gate;
use super::ledger::Recorded;
use super::service::Link;
use super::transport::Endpoints;
use super::world::{SlurmCluster, World};
use crate::cache::{ByNodeSet, NodeCache, PodCache, PodSelection, nodesets_of_claim, nodesets_of_revision};
use crate::controller::{Context, follow, foreign_pods, reconcile_owned};
use crate::coordination::Coordination;
use crate::execute::{Bases, Executor, SeenByCache};
use crate::fixture;
use crate::observe::Sources;
use crate::slurm::{ClusterDeps, ClusterKey, Clusters};
use expectations::{Clock, Expectations, Limits, Predecessor};
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::Event;
use operator_runtime::testing::TestProcess;
use operator_runtime::{Classify, RawObject};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slinky_api::labels::APP_INSTANCE;
use slinky_api::v1beta1::{Controller, NodeSet, RestApi};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use test_support::api_model::LaggingCache;
use tokio::time::Instant;

/// The names of all replicas start with this.
pub const REPLICA: &str = "replica";
/// The namespace of all objects.
pub const NAMESPACE: &str = "ns";
/// The timeout of requests to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed reconcile.
const ERROR_PAUSE: Duration = Duration::from_secs(2);

/// A process, with all state that a crash loses.
pub struct Process {
    pub name: String,
    pub gate: Arc<Gate>,
    /// Its connection to the expectations service; `None` if that is part of it.
    pub link: Option<Arc<Link>>,
    context: Arc<Context>,
    sources: Arc<Sources>,
    runtime: TestProcess,
    caches: Caches,
    queue: Arc<Mutex<Queue>>,
    finished_runs: UnboundedReceiver<ObjectRef<NodeSet>>,
    slurm_changes: BoxStream<'static, ClusterKey>,
    bases: Arc<Bases>,
    coordination: Coordination,
    /// The watch of pods has begun with another selection, and has not listed them yet.
    is_listing: bool,
}

/// The caches, which lag behind the API server.
struct Caches {
    nodesets: LaggingCache<NodeSet>,
    pods: LaggingCache<Pod>,
    nodes: LaggingCache<Node>,
    revisions: LaggingCache<ControllerRevision>,
    claims: LaggingCache<PersistentVolumeClaim>,
    services: LaggingCache<RawObject<Service>>,
    pdbs: LaggingCache<PodDisruptionBudget>,
    selection: Arc<PodSelection>,
}

/// When NodeSets are reconciled next, and those that are.
#[derive(Default)]
struct Queue {
    due: BTreeMap<String, Instant>,
    active: BTreeSet<String>,
}

impl Queue {
    fn add(&mut self, name: &str, after: Duration) {
        let at = Instant::now() + after;
        let due = self.due.entry(name.to_owned()).or_insert(at);
        *due = at.min(*due);
    }
}

impl Process {
    /// A process that has just started and listed all objects. Without a `link` it is the only one, and has the expectations
    /// service inside.
    pub fn start(world: &World, name: &str, link: Option<Arc<Link>>) -> Self {
        let gate = Arc::new(Gate::default());
        let client = client(world, name, link.as_ref().map(|_| gate.clone()));
        let runtime = TestProcess::start(client.clone(), gate.wrap());
        let started = world.started;
        let clock: Clock = Arc::new(move || started.elapsed());
        let service: Arc<dyn Expectations> = match &link {
            Some(link) => link.clone(),
            None => fixture::embedded(name, Limits::default(), Predecessor::Unknown, clock.clone()),
        };
        let service = Recorded { service, ledger: world.ledger.clone() };
        let coordination = Coordination::new(Arc::new(service), name.into());
        let controllers: Store<Controller> = store(world.clusters.iter().map(SlurmCluster::controller_json));
        let (owner, spawner) = (coordination.clone(), gate.clone());
        let clusters = Clusters::new(ClusterDeps {
            controllers: controllers.clone(),
            restapis: store::<RestApi>(world.clusters.iter().map(SlurmCluster::restapi_json)),
            client_factory: Box::new(Endpoints { replica: name.to_owned(), world: world.clone() }),
            clock: world.clock(),
            spawn: Box::new(move |task| spawner.spawn(task)),
            is_owned: Box::new(move |key| owner.owns_cluster(key)),
        });
        let slurm_changes = clusters.changes().boxed();
        let (stopping, bases) = (runtime.scope.clone(), Arc::default());
        let executor = Executor {
            client,
            clusters,
            coordination: coordination.clone(),
            clock,
            is_stopping: Box::new(move || stopping.is_shutting_down()),
            bases: Arc::clone(&bases),
        };
        let caches = Caches::new(world);
        let sources = Arc::new(caches.sources(fixture::sources(&executor, controllers)));
        let (enqueue, finished_runs) = unbounded();
        let context = Context::new(runtime.scope.clone(), sources.clone(), executor, &enqueue, world.clock());
        let context = Arc::new(context);
        let following = context.clone();
        gate.spawn(async move { follow(&following, &enqueue).await });
        if let Some(link) = link.clone() {
            gate.spawn(async move { link.join().await });
        }
        let mut process = Self {
            name: name.to_owned(),
            gate,
            link,
            context,
            sources,
            runtime,
            caches,
            queue: Arc::default(),
            finished_runs,
            slurm_changes,
            bases,
            coordination,
            is_listing: false,
        };
        process.deliver(0, true);
        process
    }

    /// Delivers this many watch events of each kind to the caches, of pods all by a relist if `relist`.
    pub fn deliver(&mut self, count: usize, relist: bool) {
        let changed_pods = self.deliver_pods(count, relist);
        let Caches { nodesets, nodes, revisions, claims, services, pdbs, .. } = &mut self.caches;
        let changed_nodesets = nodesets.deliver(count);
        for event in &changed_nodesets {
            if let Event::Apply(nodeset) | Event::Delete(nodeset) = event {
                self.context.forget_if_gone(nodeset);
            }
        }
        let changed_revisions = revisions.deliver(count);
        for event in &changed_revisions {
            self.sources.revisions.observe(event);
        }
        let changed_claims = claims.deliver(count);
        for event in &changed_claims {
            self.sources.claims.observe(event);
        }
        let changed_nodes = nodes.deliver(count);
        if !changed_nodes.is_empty() {
            self.sources.nodes.invalidate();
        }
        let is_changed = !(changed_nodesets.is_empty()
            && changed_revisions.is_empty()
            && changed_claims.is_empty()
            && changed_nodes.is_empty()
            && changed_pods.is_empty()
            && services.deliver(count).is_empty()
            && pdbs.deliver(count).is_empty());
        if is_changed {
            self.enqueue_all();
        }
    }

    /// Delivers watch events of pods. A watch that has to begin with another selection lists the pods at the next call.
    fn deliver_pods(&mut self, count: usize, relist: bool) -> Vec<Event<Pod>> {
        let Caches { pods, selection, .. } = &mut self.caches;
        let is_outdated = selection.outdated().now_or_never().is_some();
        let events = if relist || is_outdated {
            let exclusion = foreign_pods(&self.sources.nodesets, &self.coordination);
            selection.begin(exclusion.clone());
            pods.select(move |pod| {
                let nodeset = pod.labels().get(APP_INSTANCE);
                nodeset.is_none_or(|nodeset| !exclusion.leaves_out(NAMESPACE, nodeset))
            });
            self.is_listing = !relist;
            if relist { pods.relist() } else { vec![] }
        } else if std::mem::take(&mut self.is_listing) {
            pods.relist()
        } else {
            pods.deliver(count)
        };
        for event in &events {
            self.sources.pods.observe(event);
            self.bases.observe(event);
        }
        events
    }

    /// Tells the ledger what this process believes to own.
    pub fn record_ownership(&self, world: &World) {
        record_ownership(&self.name, self.link.as_deref(), world);
    }

    /// State that this process keeps of a NodeSet although another one owns it.
    pub fn stale_state(&self, world: &World) -> Option<String> {
        let is_lost = |nodeset: &NodeSet| {
            self.link
                .as_ref()
                .is_some_and(|link| !link.ownership().owns(&ClusterKey::of(nodeset).to_string()))
        };
        let nodesets = world.api.list::<NodeSet>(NAMESPACE).into_iter();
        let mut nodesets = nodesets.map(|nodeset| NodeSet::deserialize(nodeset.as_ref()).unwrap());
        let kept = nodesets.find(|nodeset| {
            is_lost(nodeset) && self.bases.seen(&nodeset.uid().unwrap_or_default()) != SeenByCache::Unknown
        })?;
        Some(format!("{} keeps the basis of {}, which it lost", self.name, kept.name_any()))
    }

    fn enqueue_all(&self) {
        let mut queue = self.queue.lock();
        for nodeset in self.sources.nodesets.state() {
            queue.add(&nodeset.name_any(), Duration::ZERO);
        }
    }

    /// Starts the reconciles that are due, as kube's controller does: one at a time per NodeSet.
    pub fn reconcile(&mut self, world: &World) {
        while let Ok(finished) = self.finished_runs.try_recv() {
            self.queue.lock().add(&finished.name, Duration::ZERO);
        }
        while self.slurm_changes.next().now_or_never().flatten().is_some() {
            self.enqueue_all();
        }
        let mut nodesets = self.sources.nodesets.state();
        // The order of a cache is random, and would not be a function of the seed.
        nodesets.sort_by_key(|nodeset| nodeset.name_any());
        for nodeset in nodesets {
            let name = nodeset.name_any();
            let mut queue = self.queue.lock();
            let is_due = queue.due.get(&name).is_some_and(|due| *due <= Instant::now());
            if !is_due || !queue.active.insert(name.clone()) {
                continue;
            }
            queue.due.remove(&name);
            drop(queue);
            let (context, queue) = (self.context.clone(), self.queue.clone());
            let (replica, link, world) = (self.name.clone(), self.link.clone(), world.clone());
            self.gate.spawn(async move {
                record_ownership(&replica, link.as_deref(), &world);
                let after = match reconcile_owned(nodeset, context).await {
                    Ok(after) => after,
                    Err(error) => Some(error.requeue_after().unwrap_or(ERROR_PAUSE).min(ERROR_PAUSE)),
                };
                let mut queue = queue.lock();
                queue.active.remove(&name);
                if let Some(after) = after {
                    queue.add(&name, after);
                }
            });
        }
    }

    /// Shuts down in good order: sends nothing more, ends its batches, and leaves.
    pub fn leave(&self) {
        self.runtime.shut_down();
        let (context, link, gate) = (self.context.clone(), self.link.clone(), self.gate.clone());
        self.gate.spawn(async move {
            context.finish().await;
            if let Some(link) = link {
                link.leave();
            }
            gate.kill();
        });
    }
}

impl Caches {
    fn new(world: &World) -> Self {
        let api = &world.api;
        Self {
            nodesets: LaggingCache::new(api),
            pods: LaggingCache::new(api),
            nodes: LaggingCache::new(api),
            revisions: LaggingCache::new(api),
            claims: LaggingCache::new(api),
            services: LaggingCache::new(api),
            pdbs: LaggingCache::new(api),
            selection: Arc::default(),
        }
    }

    /// Sources that read these caches.
    fn sources(&self, others: Sources) -> Sources {
        let sources = Sources {
            nodesets: self.nodesets.store(),
            pods: PodCache::new(self.pods.store(), self.selection.clone()),
            nodes: NodeCache::new(self.nodes.store(), Arc::from([])),
            revisions: ByNodeSet::new(self.revisions.store(), nodesets_of_revision),
            claims: ByNodeSet::new(self.claims.store(), nodesets_of_claim),
            services: self.services.store(),
            pdbs: self.pdbs.store(),
            ..others
        };
        sources.revisions.observe(&Event::InitDone);
        sources.claims.observe(&Event::InitDone);
        sources
    }
}

/// A client of the API server. Now and then the process behind `gate` is stopped right before it sends a write in a batch.
fn client(world: &World, replica: &str, gate: Option<Arc<Gate>>) -> kube::Client {
    let (name, shared) = (replica.to_owned(), world.clone());
    world.api.client_named_by(REQUEST_TIMEOUT, move || {
        let (sender, world) = (shared.ledger.sender(&name), shared.clone());
        if shared.ledger.is_busy(&name)
            && let Some(gate) = &gate
            && let Some(time) = world.stop_at_write()
        {
            world.note(format!("{name} is stopped at a write for {time:?}"));
            gate.stop_for(time);
        }
        async move {
            world.latency().await;
            sender
        }
    })
}

fn record_ownership(replica: &str, link: Option<&Link>, world: &World) {
    for cluster in world.clusters.iter() {
        let key = format!("{NAMESPACE}/{}", cluster.name);
        if link.is_none_or(|link| link.ownership().owns(&key)) {
            world.ledger.owns(replica, cluster.nodeset);
        }
    }
}

/// A cache of these objects.
fn store<K>(objects: impl Iterator<Item = Value>) -> Store<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    let (store, mut writer) = reflector::store();
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(K::deserialize(object).unwrap()));
    }
    store
}
