//! Batches against an in-memory API server, Slurm and expectations service, under paused time.

mod basis;
mod begin;
mod cordon;
mod create;
mod deadlines;
mod delete;
mod mirror;
mod ownership;
mod request_counts;
mod slurm_writes;

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

/// The requests that the API server and Slurm received, in one order.
#[derive(Clone, Default)]
struct RequestLog(Arc<Mutex<Vec<String>>>);

impl RequestLog {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// Records every request to slurmrestd.
#[derive(Clone)]
struct RecordingTransport(FakeSlurm, RequestLog);

impl Transport for RecordingTransport {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let path = request.uri().path().splitn(4, '/').last().unwrap_or_default().to_owned();
        let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let fields = ["/name/0", "/name", "/state/0", "/comment"]
            .iter()
            .filter_map(|field| body.pointer(field)?.as_str());
        let words: Vec<&str> = [request.method().as_str(), &path].into_iter().chain(fields).collect();
        self.1.add(words.join(" "));
        self.0.send(request)
    }
}

/// A NodeSet, its pods and its Slurm cluster, and the executor under test.
struct Fixture {
    api: ApiModel,
    slurm: FakeSlurm,
    log: RequestLog,
    service: Arc<Embedded>,
    executor: Executor,
    stopping: Arc<AtomicBool>,
    nodeset: Arc<NodeSet>,
    reached: Reached,
}

impl Fixture {
    /// Slurm has these nodes and has been polled. The service is not half-open.
    async fn new(nodes: &[&str]) -> Self {
        Self::with(nodes, Limits::default(), Predecessor::Settled).await
    }

    async fn with(nodes: &[&str], limits: Limits, predecessor: Predecessor) -> Self {
        let (log, slurm, began) = (RequestLog::default(), FakeSlurm::new(), Instant::now());
        for node in nodes {
            slurm.start_slurmd(node);
        }
        let api = ApiModel::new(move || Timestamp::UNIX_EPOCH + Instant::now().duration_since(began));
        let clock: Clock = Arc::new(move || began.elapsed());
        let service = fixture::embedded("r", limits, predecessor, clock.clone());
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
        let reached = fixture::reached(RecordingTransport(slurm.clone(), log.clone()), slurm.clock(), spawn);
        let stopping = Arc::new(AtomicBool::new(false));
        let is_stopping = stopping.clone();
        let nodeset = api.put::<NodeSet>(fixture::nodeset(&json!({})));
        let client = api.client("controller");
        let executor = Executor {
            is_stopping: Box::new(move || is_stopping.load(Relaxed)),
            ..fixture::executor("r", client, reached.clusters.clone(), service.clone(), clock)
        };
        let nodeset = Arc::new(serde_json::from_value(Value::clone(&nodeset)).unwrap());
        let fixture = Self { api, slurm, log, service, executor, stopping, nodeset, reached };
        fixture.on_api_request(|_| Fate::Served);
        fixture.wait_for_slurm_view().await;
        fixture
    }

    async fn wait_for_slurm_view(&self) {
        let key = ClusterKey::of(&self.nodeset);
        while !matches!(self.executor.clusters.view(&key, Queries::default()), View::Known(_)) {
            sleep(Duration::from_millis(10)).await;
            assert!((self.executor.clock)() < seconds(60), "Slurm has not been polled within 60 s");
        }
        self.log.clear();
    }

    /// Sets how the API server treats each request from now on.
    fn on_api_request(&self, mut fate: impl FnMut(&Call) -> Fate + Send + 'static) {
        let log = self.log.clone();
        self.api.on_request(move |call| {
            log.add(call.to_string());
            fate(call)
        });
    }

    /// The API server performs the first request with this verb and answers it with a timeout.
    fn misreport_once(&self, verb: Verb) {
        let mut first = true;
        self.on_api_request(move |call| {
            let fails = call.verb == verb && std::mem::take(&mut first);
            if fails { Fate::Misreported(Failure::Timeout) } else { Fate::Served }
        });
    }

    /// Stores a pod of the NodeSet; `change` is merged into it.
    fn put_pod(&self, name: &str, change: &Value) -> PodRef {
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

    /// Stores a pod that is marked for scale-in.
    fn put_marked_pod(&self, name: &str) -> PodRef {
        self.put_pod(name, &mark("scale-in"))
    }

    /// Stores a marked pod and drains its Slurm node.
    async fn put_drained_pod(&self, name: &str) -> PodRef {
        self.drain_node(name).await;
        self.put_marked_pod(name)
    }

    async fn drain_node(&self, node: &str) {
        let update = NodeUpdate::Drain { reason: "slurm-operator: test".to_owned() };
        self.slurm.client().update_nodes(&[node], &update).await.unwrap();
    }

    /// Sets the comment of a Slurm node to that of a worker of the NodeSet; `change` is merged into it.
    async fn set_comment(&self, node: &str, change: &Value) {
        let mut comment = json!({
            "namespace": "ns", "podName": format!("{node}-pod"), "node": "host",
            "nodeSetName": "gpu", "nodeSetUID": self.nodeset.metadata.uid,
        });
        merge(&mut comment, change);
        let update = NodeUpdate::Comment(comment.to_string());
        self.slurm.client().update_nodes(&[node], &update).await.unwrap();
    }

    /// Stops slurmd on these nodes, whose comments name pods that do not exist, until their records are abandoned.
    async fn abandon_records(&self, nodes: &[&str]) {
        for node in nodes {
            self.set_comment(node, &json!({})).await;
            self.slurm.stop_slurmd(node);
        }
        sleep(seconds(60)).await;
        self.log.clear();
    }

    fn owner(&self) -> Value {
        json!(slinky_api::ownership::controller_reference(&*self.nodeset))
    }

    /// The create of a pod without claims.
    fn create_pod(&self, name: &str) -> Effect {
        self.create_pod_with_claims(name, vec![])
    }

    fn create_pod_with_claims(&self, name: &str, claims: Vec<PersistentVolumeClaim>) -> Effect {
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
        let writes = PlannedWrites { nodeset: self.nodeset.clone(), effects, node_mirrors: vec![], basis };
        self.executor.perform(writes).await
    }

    fn get<K: Resource<DynamicType = ()>>(&self, name: &str) -> Option<Arc<Value>> {
        self.api.get::<K>("ns", name)
    }

    fn remove<K: Resource<DynamicType = ()>>(&self, name: &str) {
        assert!(self.api.remove::<K>("ns", name), "{name} does not exist");
    }

    fn is_terminating(&self, pod: &str) -> bool {
        self.get::<Pod>(pod).is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    }

    fn annotation(&self, pod: &str, key: &str) -> Option<String> {
        Some(self.get::<Pod>(pod)?["metadata"]["annotations"][key].as_str()?.to_owned())
    }

    /// The write requests, in order.
    fn writes(&self) -> Vec<String> {
        let is_read = |line: &String| line.starts_with("GET ") || line.starts_with("get ");
        self.log.lines().into_iter().filter(|line| !is_read(line)).collect()
    }

    /// Whether a batch is open at the service.
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

fn cordon(pod: &PodRef) -> Effect {
    let drain = Some(drain_of(&pod.name));
    Effect::Cordon { pod: pod.clone(), cause: Cause::ScaleIn, person: false, drain }
}

fn drain_of(node: &str) -> Drain {
    Drain { node: node.to_owned(), reason: "slurm-operator: scale-in".to_owned() }
}

fn uncordon(pod: &PodRef, unmark: bool) -> Effect {
    Effect::Uncordon { pod: pod.clone(), unmark, person: false, undo: Some(Undo::Undrain(pod.name.clone())) }
}

fn delete(pod: &PodRef, evidence: Evidence) -> Effect {
    Effect::DeletePod(PodDeletion { pod: pod.clone(), evidence, why: DeleteReason::Surplus })
}

/// The delete of a pod whose Slurm node, of the same name, has to be drained.
fn delete_drained(pod: &PodRef) -> Effect {
    delete(pod, Evidence::Drained { node: pod.name.clone(), addresses: vec![] })
}

fn is_request(call: &Call, verb: Verb, name: &str) -> bool {
    call.verb == verb && call.target.name == name
}

/// The number of lines with this prefix.
fn count_with_prefix(lines: &[String], prefix: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(prefix)).count()
}
