//! The operator process, from start to crash.

use crate::cache::{ByNodeSet, NodeCache, PodCache, nodesets_of_revision};
use crate::execute::{Executor, PlannedWrites, mirror_pods};
use crate::fixture::{self, Reached};
use crate::observe::{Sources, observe};
use crate::plan::{Plan, plan};
use crate::runner::execute_planned;
use expectations::{Limits, Predecessor};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use serde_json::json;
use slinky_api::v1beta1::NodeSet;
use slurm_fake::FakeSlurm;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use test_support::api_model::{ApiModel, LaggingCache};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Client name of the process at the API server.
pub const OPERATOR: &str = "operator";
/// The namespace of all objects.
pub const NAMESPACE: &str = "ns";
/// The NodeSet's name.
pub const NODESET: &str = "gpu";

/// The operator process, with all state that a crash loses.
pub struct Process {
    sources: Arc<Sources>,
    executor: Arc<Executor>,
    nodesets: LaggingCache<NodeSet>,
    pods: LaggingCache<Pod>,
    nodes: LaggingCache<Node>,
    revisions: LaggingCache<ControllerRevision>,
    run: Option<JoinHandle<()>>,
    background: Arc<Mutex<Vec<JoinHandle<()>>>>,
    _reached: Reached,
}

impl Process {
    /// A process that has just started and listed all objects.
    pub fn start(api: &ApiModel, slurm: &FakeSlurm, restarts: u32, started: Instant) -> Self {
        let background: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let tasks = background.clone();
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let spawn = move |task: BoxFuture<'static, ()>| tasks.lock().unwrap().push(tokio::spawn(task));
        let reached = fixture::reached(slurm.clone(), slurm.clock(), spawn);
        let clock: expectations::Clock = Arc::new(move || started.elapsed());
        let name = format!("process {restarts}");
        let service = fixture::embedded(&name, Limits::default(), Predecessor::Unknown, clock.clone());
        let executor =
            fixture::executor(&name, api.client(OPERATOR), reached.clusters.clone(), service, clock);
        let (nodesets, pods) = (LaggingCache::new(api), LaggingCache::new(api));
        let (nodes, revisions) = (LaggingCache::new(api), LaggingCache::new(api));
        let sources = Sources {
            nodesets: nodesets.store(),
            pods: PodCache::new(pods.store()),
            nodes: NodeCache::new(nodes.store(), Arc::from([])),
            revisions: ByNodeSet::new(revisions.store(), nodesets_of_revision),
            ..fixture::sources(&executor, reached.controllers.clone())
        };
        let mut process = Self {
            sources: Arc::new(sources),
            executor: Arc::new(executor),
            nodesets,
            pods,
            nodes,
            revisions,
            run: None,
            background,
            _reached: reached,
        };
        let listed = process.pods.relist();
        process.handle(&listed);
        process
    }

    fn handle(&self, events: &[Event<Pod>]) {
        for event in events {
            self.sources.pods.observe(event);
            self.executor.bases.observe(event);
        }
    }

    /// Delivers this many watch events to the caches, or all by a relist.
    pub fn deliver(&mut self, count: usize, relist: bool) {
        self.nodesets.deliver(count);
        self.revisions.deliver(count).iter().for_each(|event| self.sources.revisions.observe(event));
        if !self.nodes.deliver(count).is_empty() {
            self.sources.nodes.invalidate();
        }
        let events = if relist { self.pods.relist() } else { self.pods.deliver(count) };
        self.handle(&events);
    }

    /// One reconcile, as the controller does it. Effects run in the background.
    pub async fn reconcile(
        &mut self,
        api: &ApiModel,
        now: Timestamp,
        clock: fn(i64) -> Timestamp,
    ) -> Option<Plan> {
        let nodeset = self.nodesets.store().state().into_iter().next()?;
        let seen = self.executor.bases.seen(&nodeset.uid().unwrap_or_default());
        let observed = observe(&nodeset, &self.sources).await;
        let plan = plan(&observed, now);
        if let Some(change) = &plan.metadata {
            annotate(api, &observed.nodeset, &change.annotations);
        }
        if let Some(revision) = plan.children.as_ref().and_then(|children| children.revision.clone()) {
            create_revision(api, revision);
        }
        // The real client has a request timeout.
        let mirrored = mirror_pods(&plan.pod_mirrors, &self.sources.client, NAMESPACE);
        let _ = timeout(Duration::from_secs(30), mirrored).await;
        let idle = self.run.as_ref().is_none_or(JoinHandle::is_finished);
        if let (true, Some(mut writes), Ok(basis)) = (idle, PlannedWrites::of(&observed, &plan), seen.basis())
        {
            writes.basis = basis;
            let (sources, executor) = (self.sources.clone(), self.executor.clone());
            let second = now.as_second();
            #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
            let task = tokio::spawn(async move {
                execute_planned(writes, &sources, &executor, &move || clock(second)).await;
            });
            self.run = Some(task);
        }
        Some(plan)
    }

    /// Kills the process at its current await point.
    pub fn crash(self) {
        self.run.iter().for_each(JoinHandle::abort);
        self.background.lock().unwrap().iter().for_each(JoinHandle::abort);
    }
}

/// Writes annotations of the NodeSet as the controller would, in the observed version only; this write meets no fault.
fn annotate(api: &ApiModel, nodeset: &NodeSet, annotations: &BTreeMap<String, Option<String>>) {
    let live = api.get::<NodeSet>(NAMESPACE, NODESET);
    let version = live.and_then(|live| live["metadata"]["resourceVersion"].as_str().map(str::to_owned));
    if version == nodeset.resource_version() {
        api.edit::<NodeSet>(NAMESPACE, NODESET, |live| {
            for (key, value) in annotations {
                match value {
                    Some(value) => live["metadata"]["annotations"][key] = json!(value),
                    None => drop(live["metadata"]["annotations"].as_object_mut().unwrap().remove(key)),
                }
            }
        });
    }
}

/// Creates the revision that the controller would create; this write meets no fault.
fn create_revision(api: &ApiModel, revision: ControllerRevision) {
    let name = revision.metadata.name.clone().unwrap_or_default();
    if api.get::<ControllerRevision>(NAMESPACE, &name).is_none() {
        api.put::<ControllerRevision>(revision);
    }
}
