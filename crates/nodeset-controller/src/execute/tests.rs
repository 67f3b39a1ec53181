//! Batches against an API server, a Slurm and an expectations service in memory, under paused time.

mod asking;
mod cordon;
mod create;
mod delete;
mod load;
mod mirror;
mod rest;
mod seen;
mod time;

use super::report::WriteKind;
use super::{Bases, BatchOutcome, Executor, PlannedWrites, Report};
use crate::fixture::{self, Reached};
use crate::plan::{DeleteReason, Drain, Effect, Evidence, NewPod, PodDeletion, Undo};
use crate::slurm::{ClusterKey, Queries, View};
use crate::worker::{Cause, PodRef};
use bytes::Bytes;
use expectations::{Basis, Clock, Embedded, Epoch, Limits, Predecessor, Timing};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Resource;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use slinky_api::labels::annotations::{POD_CORDON, POD_CORDON_BY};
use slinky_api::v1beta1::NodeSet;
use slurm_fake::{FakeSlurm, Fault};
use slurm_rest::{NodeUpdate, Transport, TransportError};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use test_support::api_model::{ApiModel, Call, Failure, Fate, Verb};
use tokio::time::{Instant, sleep};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Everything that reached the API server and Slurm, in one order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A slurmrestd that is listened in on.
#[derive(Clone)]
struct Tapped(FakeSlurm, Log);

impl Transport for Tapped {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let path = request.uri().path().splitn(4, '/').last().unwrap_or_default().to_owned();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let what = ["/name/0", "/name", "/state/0", "/comment"]
            .iter()
            .filter_map(|field| body.pointer(field)?.as_str());
        let words: Vec<&str> = [request.method().as_str(), &path].into_iter().chain(what).collect();
        self.1.add(words.join(" "));
        self.0.send(request)
    }
}

/// A NodeSet, its pods and its Slurm cluster.
struct World {
    api: ApiModel,
    slurm: FakeSlurm,
    log: Log,
    service: Arc<Embedded>,
    executor: Executor,
    stopping: Arc<AtomicBool>,
    nodeset: Arc<NodeSet>,
    reached: Reached,
}

impl World {
    /// Slurm is known and has these nodes. Nothing stands in the way of a batch.
    async fn new(nodes: &[&str]) -> Self {
        Self::with(nodes, Limits::default(), Predecessor::Settled).await
    }

    async fn with(nodes: &[&str], limits: Limits, predecessor: Predecessor) -> Self {
        let (log, slurm, began) = (Log::default(), FakeSlurm::new(), Instant::now());
        for node in nodes {
            slurm.start_slurmd(node);
        }
        let api = ApiModel::new(move || Timestamp::UNIX_EPOCH + Instant::now().duration_since(began));
        let clock: Clock = Arc::new(move || began.elapsed());
        let service = fixture::embedded("r", limits, predecessor, clock.clone());
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
        let reached = fixture::reached(Tapped(slurm.clone(), log.clone()), slurm.clock(), spawn);
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = stopping.clone();
        let nodeset = api.put::<NodeSet>(fixture::nodeset(&json!({})));
        let client = api.client("controller");
        let executor = Executor {
            is_stopping: Box::new(move || is_stopping.load(Relaxed)),
            ..fixture::executor("r", client, reached.clusters.clone(), service.clone(), clock)
        };
        let nodeset = Arc::new(serde_json::from_value(Value::clone(&nodeset)).unwrap());
        let world = Self { api, slurm, log, service, executor, stopping, nodeset, reached };
        world.fate(|_| Fate::Served);
        world.until_known().await;
        world
    }

    async fn until_known(&self) {
        let key = ClusterKey::of(&self.nodeset);
        while !matches!(self.executor.clusters.view(&key, Queries::default()), View::Known(_)) {
            sleep(Duration::from_millis(10)).await;
            assert!((self.executor.clock)() < seconds(60), "Slurm is not known");
        }
        self.log.0.lock().unwrap().clear();
    }

    /// Decides from now on what becomes of each request to the API server.
    fn fate(&self, mut fate: impl FnMut(&Call) -> Fate + Send + 'static) {
        let log = self.log.clone();
        self.api.on_request(move |call| {
            log.add(call.to_string());
            fate(call)
        });
    }

    /// Does the first request of this kind, and says that it failed.
    fn misreport_once(&self, verb: Verb) {
        let mut first = true;
        self.fate(move |call| {
            let fails = call.verb == verb && std::mem::take(&mut first);
            if fails { Fate::Misreported(Failure::Timeout) } else { Fate::Served }
        });
    }

    /// A pod of the NodeSet; `change` is merged into it.
    fn pod(&self, name: &str, change: &Value) -> PodRef {
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": "ns",
                "ownerReferences": [self.owner()],
            },
            "spec": { "nodeName": "host" },
            "status": { "phase": "Running" },
        });
        merge(&mut pod, change);
        reference(&self.api.put::<Pod>(pod))
    }

    /// A pod that was marked for scale-in.
    fn marked(&self, name: &str) -> PodRef {
        self.pod(name, &mark("scale-in"))
    }

    /// A marked pod whose Slurm node is drained.
    async fn drained(&self, name: &str) -> PodRef {
        self.drain(name).await;
        self.marked(name)
    }

    async fn drain(&self, node: &str) {
        let update = NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() };
        self.slurm.client().update_nodes(&[node], &update).await.unwrap();
    }

    /// The comment of a Slurm node says that it is a worker of the NodeSet; `change` is merged into it.
    async fn comment(&self, node: &str, change: &Value) {
        let mut comment = json!({
            "namespace": "ns", "podName": format!("{node}-pod"), "node": "host",
            "nodeSetName": "gpu", "nodeSetUID": self.nodeset.metadata.uid,
        });
        merge(&mut comment, change);
        let update = NodeUpdate::Comment(comment.to_string());
        self.slurm.client().update_nodes(&[node], &update).await.unwrap();
    }

    /// Nobody stands any more behind the records of these nodes, which were workers.
    async fn abandon(&self, nodes: &[&str]) {
        for node in nodes {
            self.comment(node, &json!({})).await;
            self.slurm.stop_slurmd(node);
        }
        sleep(seconds(60)).await;
        self.log.0.lock().unwrap().clear();
    }

    fn owner(&self) -> Value {
        json!(slinky_api::ownership::controller_reference(&*self.nodeset))
    }

    /// A pod to make.
    fn new_pod(&self, name: &str) -> Effect {
        self.new_pod_with(name, vec![])
    }

    fn new_pod_with(&self, name: &str, claims: Vec<PersistentVolumeClaim>) -> Effect {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "ns", "ownerReferences": [self.owner()] },
            "spec": { "hostname": name, "brandNew": "kept" },
        });
        Effect::CreatePod(Box::new(NewPod { name: name.to_owned(), pod, names_its_node: true, claims }))
    }

    /// Performs effects that were planned on a fresh view.
    async fn perform(&self, effects: Vec<Effect>) -> Report {
        let report = self.perform_on(None, effects.clone()).await;
        let BatchOutcome::NeedFresh(basis) = report.outcome else { return report };
        self.perform_on(Some(basis), effects).await
    }

    async fn perform_on(&self, basis: Option<Basis>, effects: Vec<Effect>) -> Report {
        let work = PlannedWrites { nodeset: self.nodeset.clone(), effects, node_mirrors: vec![], basis };
        self.executor.perform(work).await
    }

    fn get<K: Resource<DynamicType = ()>>(&self, name: &str) -> Option<Arc<Value>> {
        self.api.get::<K>("ns", name)
    }

    fn forget<K: Resource<DynamicType = ()>>(&self, name: &str) {
        assert!(self.api.remove::<K>("ns", name), "{name} is not there");
    }

    fn is_terminating(&self, pod: &str) -> bool {
        self.get::<Pod>(pod).is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    }

    fn annotation(&self, pod: &str, key: &str) -> Option<String> {
        Some(self.get::<Pod>(pod)?["metadata"]["annotations"][key].as_str()?.to_owned())
    }

    /// What was written, in order.
    fn writes(&self) -> Vec<String> {
        let is_read = |line: &String| line.starts_with("GET ") || line.starts_with("get ");
        self.log.lines().into_iter().filter(|line| !is_read(line)).collect()
    }

    /// Whether the service thinks that a batch is under way.
    fn has_open_batch(&self) -> bool {
        !self.service.status().unwrap().open.is_empty()
    }
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            change.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, change) => *into = change.clone(),
    }
}

fn mark(by: &str) -> Value {
    json!({ "metadata": { "annotations": { POD_CORDON: "true", POD_CORDON_BY: by } } })
}

fn reference(pod: &Value) -> PodRef {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap().to_owned();
    PodRef { name: text("name"), uid: text("uid"), version: text("resourceVersion") }
}

fn retire(pod: &PodRef) -> Effect {
    let drain = Some(drain_of(&pod.name));
    Effect::Cordon { pod: pod.clone(), cause: Cause::ScaleIn, person: false, drain }
}

fn drain_of(node: &str) -> Drain {
    Drain { node: node.to_owned(), reason: "slurm-operator: scale-in".to_owned() }
}

fn restore(pod: &PodRef, unmark: bool) -> Effect {
    Effect::Uncordon { pod: pod.clone(), unmark, person: false, undo: Some(Undo::Undrain(pod.name.clone())) }
}

fn delete(pod: &PodRef, evidence: Evidence) -> Effect {
    Effect::DeletePod(PodDeletion { pod: pod.clone(), evidence, why: DeleteReason::Surplus })
}

/// The delete of a pod whose Slurm node has its name.
fn delete_drained(pod: &PodRef) -> Effect {
    delete(pod, Evidence::Drained(pod.name.clone()))
}

fn is(call: &Call, verb: Verb, name: &str) -> bool {
    call.verb == verb && call.target.name == name
}

/// Requests that begin with this.
fn count(lines: &[String], prefix: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(prefix)).count()
}
