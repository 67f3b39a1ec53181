//! One life of the operator's process.

use crate::build::{build_revision, build_revision_data};
use crate::cache::{FreshPods, NodeCache, PodCache};
use crate::execute::{Edges, mirror_pods};
use crate::fixture;
use crate::observe::observe;
use crate::plan::{Plan, RevisionStep, plan};
use crate::slurm::{Clusters, Connect, KeyError, Surroundings};
use crate::work::{Order, Readiness, carry_out, readiness};
use crate::world::World;
use expectations::{Embedded, Epoch, Limits, Parameters, Predecessor, Timing};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::reflector;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use operator_runtime::PerObject;
use serde_json::json;
use slinky_api::v1beta1::{Controller, NodeSet, RestApi};
use slurm_fake::{FakeSlurm, KEY};
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, SlurmClient, TokenSource};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use test_support::api_model::{ApiModel, LaggingCache};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// The name of the process at the API server.
pub const OPERATOR: &str = "operator";
/// The namespace of everything.
pub const NAMESPACE: &str = "ns";
/// The NodeSet's name.
pub const NODESET: &str = "gpu";

/// One life of the process: what dies with it.
pub struct Process {
    world: Arc<World>,
    nodesets: LaggingCache<NodeSet>,
    pods: LaggingCache<Pod>,
    nodes: LaggingCache<Node>,
    revisions: LaggingCache<ControllerRevision>,
    order: Option<JoinHandle<()>>,
    background: Arc<Mutex<Vec<JoinHandle<()>>>>,
    _controllers: Writer<Controller>,
    _restapis: Writer<RestApi>,
}

/// Reaches the one Slurm that there is.
struct There(FakeSlurm);

impl Connect for There {
    fn signing_key<'a>(&'a self, _: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        async { Ok(SigningKey::new(KEY)?) }.boxed()
    }

    fn client(
        &self,
        _: &str,
        key: SigningKey,
        limits: slurm_rest::Limits,
    ) -> Result<SlurmClient, EndpointError> {
        let tokens = TokenSource::new("slurm", key, self.0.clock());
        Ok(SlurmClient::new(self.0.clone(), tokens, limits))
    }
}

impl Process {
    /// A process that has just started and listed everything.
    pub fn start(api: &ApiModel, slurm: &FakeSlurm, life: u32, began: Instant) -> Self {
        let (controllers, mut controller_writer) = reflector::store();
        let (restapis, mut restapi_writer) = reflector::store();
        controller_writer.apply_watcher_event(&Event::Apply(fixture::controller()));
        let restapi = json!({ "metadata": { "name": "api", "namespace": NAMESPACE }, "spec": { "controllerRef": { "name": "slurm" } } });
        restapi_writer.apply_watcher_event(&Event::Apply(serde_json::from_value(restapi).unwrap()));
        let background: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let tasks = background.clone();
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let spawn = move |task: BoxFuture<'static, ()>| tasks.lock().unwrap().push(tokio::spawn(task));
        let clusters = Clusters::new(Surroundings {
            controllers: controllers.clone(),
            restapis,
            connect: Box::new(There(slurm.clone())),
            clock: slurm.clock(),
            spawn: Box::new(spawn),
        });
        let clock: expectations::Clock = Arc::new(move || began.elapsed());
        let parameters = Parameters {
            epoch: Epoch::from(format!("life {life}")),
            timing: Timing::default(),
            limits: Limits::default(),
            predecessor: Predecessor::Unknown,
        };
        let replica: expectations::ReplicaId = format!("replica {life}").into();
        let edges = Edges {
            client: api.client(OPERATOR),
            clusters: clusters.clone(),
            expectations: Arc::new(Embedded::new(parameters, clock.clone(), replica.clone()).unwrap()),
            replica,
            batches: AtomicU64::default(),
            clock,
            is_stopping: Box::new(|| false),
            bases: Arc::default(),
        };
        let (nodesets, pods) = (LaggingCache::new(api), LaggingCache::new(api));
        let (nodes, revisions) = (LaggingCache::new(api), LaggingCache::new(api));
        let world = World {
            nodesets: nodesets.store(),
            controllers,
            pods: PodCache::new(pods.store()),
            fresh_pods: FreshPods::new(api.client(OPERATOR)),
            nodes: NodeCache::new(nodes.store()),
            revisions: revisions.store(),
            claims: reflector::store().0,
            services: reflector::store().0,
            budgets: reflector::store().0,
            configs: reflector::store().0,
            clusters,
            client: api.client(OPERATOR),
            edges,
            memory: PerObject::default(),
            cluster_domain: "cluster.local".to_owned(),
            propagated_conditions: Arc::from([]),
        };
        let mut process = Self {
            world: Arc::new(world),
            nodesets,
            pods,
            nodes,
            revisions,
            order: None,
            background,
            _controllers: controller_writer,
            _restapis: restapi_writer,
        };
        let listed = process.pods.relist();
        process.told(&listed);
        process
    }

    fn told(&self, events: &[Event<Pod>]) {
        for event in events {
            self.world.pods.observe(event);
            self.world.edges.bases.observe(event);
        }
    }

    /// Caches learn of so much more, or of everything by a new list.
    pub fn learn(&mut self, count: usize, relist: bool) {
        self.nodesets.deliver(count);
        self.revisions.deliver(count);
        if !self.nodes.deliver(count).is_empty() {
            self.world.nodes.invalidate();
        }
        let events = if relist { self.pods.relist() } else { self.pods.deliver(count) };
        self.told(&events);
    }

    /// One pass, as the controller makes it. What needs a batch is done beside whatever happens next.
    pub async fn pass(
        &mut self,
        api: &ApiModel,
        now: Timestamp,
        clock: fn(i64) -> Timestamp,
    ) -> Option<Plan> {
        let nodeset = self.nodesets.store().state().into_iter().next()?;
        let readiness = readiness(&nodeset, &self.world);
        let observed = observe(&nodeset, &self.world).await;
        let plan = plan(&observed, now);
        for step in &plan.revisions.steps {
            keep_revision(api, &nodeset, step);
        }
        // The real client gives up by itself.
        let mirrored = mirror_pods(&plan.pod_mirrors, &self.world.client, NAMESPACE);
        let _ = timeout(Duration::from_secs(30), mirrored).await;
        let idle = self.order.as_ref().is_none_or(JoinHandle::is_finished);
        if let (true, Some(order), Readiness::Now(basis)) = (idle, Order::of(&observed, &plan), readiness) {
            let world = self.world.clone();
            let second = now.as_second();
            #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
            let task = tokio::spawn(async move {
                carry_out(order, basis, &world, &move || clock(second)).await;
            });
            self.order = Some(task);
        }
        Some(plan)
    }

    /// The process dies where it stands.
    pub fn die(self) {
        self.order.iter().for_each(JoinHandle::abort);
        self.background.lock().unwrap().iter().for_each(JoinHandle::abort);
    }
}

/// What the controller does about revisions; no fault meets it here.
fn keep_revision(api: &ApiModel, nodeset: &NodeSet, step: &RevisionStep) {
    if let RevisionStep::Create { hash, number } = step {
        let revision = build_revision(nodeset, build_revision_data(nodeset), hash, *number);
        let name = revision.metadata.name.clone().unwrap_or_default();
        if api.get::<ControllerRevision>(NAMESPACE, &name).is_none() {
            api.put::<ControllerRevision>(revision);
        }
    }
}
