//! Clusters against a Slurm in memory, under paused time.

mod evidence;
mod looks;
mod pace;
mod states;
mod writes;

use super::connect::USER;
use super::{
    Cluster, ClusterDeps, ClusterKey, Clusters, Connect, KeyError, Known, NodeLookup, Queries, View,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher::Event;
use operator_runtime::MissingReference;
use operator_runtime::references::ReferenceError;
use serde_json::json;
use slinky_api::v1beta1::{Controller, RestApi};
use slurm_fake::{FakeSlurm, Fault, KEY};
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, Limits, NodeState, SlurmClient, TokenSource, Transport, TransportError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NOTHING: Queries = Queries { jobs: false, reservations: false };
const JOBS: Queries = Queries { jobs: true, reservations: false };
const RESERVATIONS: Queries = Queries { jobs: false, reservations: true };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Lets so many seconds pass.
async fn pass(time: u64) {
    sleep(seconds(time)).await;
}

fn key(namespace: &str) -> ClusterKey {
    ClusterKey { namespace: namespace.to_owned(), controller: "slurm".to_owned() }
}

/// What reached one slurmrestd, whether or not somebody waited for the answer.
#[derive(Default)]
struct Load {
    requests: AtomicUsize,
    reads: Concurrency,
    writes: Concurrency,
}

#[derive(Default)]
struct Concurrency {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Concurrency {
    fn begin(&self) {
        self.most.fetch_max(self.now.fetch_add(1, Relaxed) + 1, Relaxed);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Relaxed);
    }
}

/// A slurmrestd that works off what it was asked for even if nobody waits any more, as the real one does.
#[derive(Clone)]
struct Server {
    slurm: FakeSlurm,
    load: Arc<Load>,
}

impl Transport for Server {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, TransportError>> {
        let server = self.clone();
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let working = tokio::spawn(async move {
            let load = &server.load;
            let kind = if request.method() == Method::GET { &load.reads } else { &load.writes };
            load.requests.fetch_add(1, Relaxed);
            kind.begin();
            let answer = server.slurm.send(request).await;
            kind.end();
            answer
        });
        Box::pin(async move { working.await.unwrap() })
    }
}

/// The servers by URL, and the signing key of all of them.
struct Ways {
    servers: Mutex<BTreeMap<String, Server>>,
    key: Mutex<Option<&'static [u8]>>,
    key_reads: AtomicUsize,
}

impl Connect for Arc<Ways> {
    fn signing_key<'a>(&'a self, controller: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        self.key_reads.fetch_add(1, Relaxed);
        let name = controller.spec.signing_key_ref().unwrap().name.clone();
        let key = *self.key.lock().unwrap();
        let key = key.ok_or(ReferenceError::from(MissingReference::Secret(name)));
        async move { Ok(SigningKey::new(key?)?) }.boxed()
    }

    fn client(&self, url: &str, key: SigningKey, limits: Limits) -> Result<SlurmClient, EndpointError> {
        let servers = self.servers.lock().unwrap();
        let server = servers.get(url).cloned().ok_or_else(|| EndpointError::Url(url.to_owned()))?;
        drop(servers);
        let tokens = TokenSource::new(USER, key, server.slurm.clock());
        Ok(SlurmClient::new(server, tokens, limits))
    }
}

/// A Kubernetes with Controllers and RestApis, and Slurm clusters behind them.
struct World {
    clusters: Clusters,
    /// The Slurm of the Controller `slurm` in `ns`.
    slurm: FakeSlurm,
    load: Arc<Load>,
    ways: Arc<Ways>,
    controllers: Writer<Controller>,
    restapis: Writer<RestApi>,
    news: BoxStream<'static, ClusterKey>,
}

impl World {
    /// One cluster with these nodes and a way to it. Nobody has asked about it yet.
    fn new(nodes: &[&str]) -> Self {
        let mut world = Self::without_restapi(nodes);
        world.add_restapi("ns", "api");
        world
    }

    fn without_restapi(nodes: &[&str]) -> Self {
        let (controllers, controller_writer) = reflector::store();
        let (restapis, restapi_writer) = reflector::store();
        let ways = Arc::new(Ways {
            servers: Mutex::default(),
            key: Mutex::new(Some(KEY)),
            key_reads: AtomicUsize::default(),
        });
        let slurm = FakeSlurm::new();
        for node in nodes {
            slurm.start_slurmd(node);
        }
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
        let clusters = Clusters::new(ClusterDeps {
            controllers,
            restapis,
            connect: Box::new(ways.clone()),
            clock: slurm.clock(),
            spawn: Box::new(spawn),
        });
        let news = clusters.changes().boxed();
        let (controllers, restapis) = (controller_writer, restapi_writer);
        let load = Arc::default();
        let mut world = Self { clusters, slurm: slurm.clone(), load, ways, controllers, restapis, news };
        world.load = world.serve("ns", "api", slurm);
        world.add_controller("ns", "uid-1");
        world
    }

    /// A world that was looked at.
    async fn known(nodes: &[&str]) -> Self {
        let mut world = Self::new(nodes);
        world.until("known", |view| matches!(view, View::Known(_))).await;
        world.slurm.take_requests();
        world.drain_news();
        world
    }

    /// A world that was looked at for so long that it is not new any more.
    async fn settled(nodes: &[&str]) -> Self {
        let mut world = Self::known(nodes).await;
        world.until("no longer new", |view| matches!(view, View::Known(known) if !known.is_new)).await;
        pass(2).await;
        world.slurm.take_requests();
        world.drain_news();
        world
    }

    fn serve(&self, namespace: &str, restapi: &str, slurm: FakeSlurm) -> Arc<Load> {
        let (load, url) = (Arc::<Load>::default(), format!("http://{restapi}-restapi.{namespace}:6820"));
        self.ways.servers.lock().unwrap().insert(url, Server { slurm, load: load.clone() });
        load
    }

    fn add_controller(&mut self, namespace: &str, uid: &str) {
        self.controllers.apply_watcher_event(&Event::Apply(controller(namespace, uid)));
    }

    fn remove_controller(&mut self, namespace: &str) {
        self.controllers.apply_watcher_event(&Event::Delete(controller(namespace, "")));
    }

    fn add_restapi(&mut self, namespace: &str, name: &str) {
        self.restapis.apply_watcher_event(&Event::Apply(restapi(namespace, name)));
    }

    fn remove_restapi(&mut self, namespace: &str, name: &str) {
        self.restapis.apply_watcher_event(&Event::Delete(restapi(namespace, name)));
    }

    fn set_key(&self, key: Option<&'static [u8]>) {
        *self.ways.key.lock().unwrap() = key;
    }

    fn key_reads(&self) -> usize {
        self.ways.key_reads.load(Relaxed)
    }

    fn view(&self) -> View {
        self.clusters.view(&key("ns"), NOTHING)
    }

    fn cluster(&self) -> Arc<Cluster> {
        self.clusters.cluster(&key("ns")).unwrap()
    }

    /// Looks every tenth of a second until `holds`, for three minutes at most; says how long it took.
    async fn until(&mut self, what: &str, holds: impl Fn(&View) -> bool) -> Duration {
        self.until_with(NOTHING, what, holds).await
    }

    async fn until_with(&mut self, wish: Queries, what: &str, holds: impl Fn(&View) -> bool) -> Duration {
        let began = Instant::now();
        loop {
            let view = self.clusters.view(&key("ns"), wish);
            if holds(&view) {
                return began.elapsed();
            }
            assert!(began.elapsed() < seconds(180), "{what}: not within three minutes, but {view:?}");
            drop(view);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The clusters told of since this was asked last.
    fn drain_news(&mut self) -> Vec<ClusterKey> {
        std::iter::from_fn(|| self.news.next().now_or_never().flatten()).collect()
    }

    /// How long it takes until something is told.
    async fn until_told(&mut self) -> Duration {
        let began = Instant::now();
        let told = tokio::time::timeout(seconds(600), self.news.next()).await;
        assert_eq!(told.expect("nothing is told"), Some(key("ns")));
        began.elapsed()
    }

    /// What was asked since the last time: method and path without version.
    fn requests(&self) -> Vec<String> {
        let requests = self.slurm.take_requests().into_iter();
        let path = |path: &str| path.splitn(4, '/').last().unwrap_or_default().to_owned();
        requests.map(|request| format!("{} {}", request.method, path(&request.path))).collect()
    }
}

fn controller(namespace: &str, uid: &str) -> Controller {
    serde_json::from_value(json!({
        "metadata": { "name": "slurm", "namespace": namespace, "uid": uid },
        "spec": { "jwtKeyRef": { "name": "tokens", "key": "jwt.key" }, "slurmKeyRef": { "name": "k", "key": "k" } },
    }))
    .unwrap()
}

fn restapi(namespace: &str, name: &str) -> RestApi {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": namespace, "creationTimestamp": "2027-01-01T00:00:00Z" },
        "spec": { "controllerRef": { "name": "slurm" } },
    }))
    .unwrap()
}

/// One word for each state of a view.
fn state(view: &View) -> &'static str {
    match view {
        View::NotExpected => "not expected",
        View::Unknown { .. } => "unknown",
        View::Known(_) => "known",
    }
}

fn why(view: &View) -> &str {
    match view {
        View::Unknown { why, .. } => why,
        View::NotExpected | View::Known(_) => panic!("{view:?}"),
    }
}

fn is_known(view: &View) -> bool {
    matches!(view, View::Known(_))
}

fn known(view: View) -> Known {
    match view {
        View::Known(known) => known,
        View::NotExpected | View::Unknown { .. } => panic!("{view:?}"),
    }
}

fn is_drained(view: &View, node: &str) -> bool {
    matches!(view.lookup(node), NodeLookup::Present(node) if node.is(&NodeState::Drain))
}

fn is_present(view: &View, node: &str) -> bool {
    matches!(view.lookup(node), NodeLookup::Present(_))
}
