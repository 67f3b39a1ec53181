//! Clusters with a fake Slurm, under paused time.

mod absence;
mod live_reads;
mod polling;
mod states;
mod writes;

use super::client_factory::USER;
use super::{
    ClientFactory, Cluster, ClusterDeps, ClusterKey, Clusters, KeyError, Known, NodeLookup, Queries, View,
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
use parking_lot::Mutex;
use serde_json::json;
use slinky_api::v1beta1::{Controller, RestApi};
use slurm_fake::{FakeSlurm, Fault, KEY};
use slurm_jwt::SigningKey;
use slurm_rest::{EndpointError, Limits, NodeState, SlurmClient, TokenSource, Transport, TransportError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NO_QUERIES: Queries = Queries { jobs: false, reservations: false };
const JOBS: Queries = Queries { jobs: true, reservations: false };
const RESERVATIONS: Queries = Queries { jobs: false, reservations: true };

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Advances the paused clock by so many seconds.
async fn advance(time: u64) {
    sleep(seconds(time)).await;
}

fn key(namespace: &str) -> ClusterKey {
    ClusterKey { namespace: namespace.to_owned(), controller: "slurm".to_owned() }
}

/// The requests that reached one slurmrestd, including those whose client disconnected.
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

/// A slurmrestd that completes requests after the client has disconnected, as the real one does.
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

/// The servers by URL, and their common signing key.
struct FakeClientFactory {
    servers: Mutex<BTreeMap<String, Server>>,
    key: Mutex<Option<&'static [u8]>>,
    key_reads: AtomicUsize,
}

impl ClientFactory for Arc<FakeClientFactory> {
    fn signing_key<'a>(&'a self, controller: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        self.key_reads.fetch_add(1, Relaxed);
        let name = controller.spec.signing_key_ref().unwrap().name.clone();
        let key = *self.key.lock();
        let key = key.ok_or(ReferenceError::from(MissingReference::Secret(name)));
        async move { Ok(SigningKey::new(key?)?) }.boxed()
    }

    fn client(&self, url: &str, key: SigningKey, limits: Limits) -> Result<SlurmClient, EndpointError> {
        let servers = self.servers.lock();
        let server = servers.get(url).cloned().ok_or_else(|| EndpointError::Url(url.to_owned()))?;
        drop(servers);
        let tokens = TokenSource::new(USER, key, server.slurm.clock());
        Ok(SlurmClient::new(server, tokens, limits))
    }
}

/// Caches of Controllers and RestApis, and the fake Slurm clusters that they refer to.
struct Fixture {
    clusters: Clusters,
    /// The Slurm of the Controller `slurm` in `ns`.
    slurm: FakeSlurm,
    load: Arc<Load>,
    client_factory: Arc<FakeClientFactory>,
    controllers: Writer<Controller>,
    restapis: Writer<RestApi>,
    changes: BoxStream<'static, ClusterKey>,
    is_owned: Arc<AtomicBool>,
}

impl Fixture {
    /// One cluster with these nodes and a RestApi. It has no reader yet.
    fn new(nodes: &[&str]) -> Self {
        let mut fixture = Self::without_restapi(nodes);
        fixture.add_restapi("ns", "api");
        fixture
    }

    fn without_restapi(nodes: &[&str]) -> Self {
        let (controllers, controller_writer) = reflector::store();
        let (restapis, restapi_writer) = reflector::store();
        let client_factory = Arc::new(FakeClientFactory {
            servers: Mutex::default(),
            key: Mutex::new(Some(KEY)),
            key_reads: AtomicUsize::default(),
        });
        let (slurm, is_owned) = (FakeSlurm::new(), Arc::new(AtomicBool::new(true)));
        for node in nodes {
            slurm.start_slurmd(node);
        }
        #[expect(clippy::disallowed_methods, reason = "a test has no runtime of ours")]
        let spawn = |task: BoxFuture<'static, ()>| drop(tokio::spawn(task));
        let clusters = Clusters::new(ClusterDeps {
            controllers,
            restapis,
            client_factory: Box::new(client_factory.clone()),
            clock: slurm.clock(),
            spawn: Box::new(spawn),
            is_owned: Box::new({
                let is_owned = is_owned.clone();
                move |_| is_owned.load(Relaxed)
            }),
        });
        let changes = clusters.changes().boxed();
        let (controllers, restapis) = (controller_writer, restapi_writer);
        let mut fixture = Self {
            clusters,
            slurm: slurm.clone(),
            load: Arc::default(),
            client_factory,
            controllers,
            restapis,
            changes,
            is_owned,
        };
        fixture.load = fixture.serve("ns", "api", slurm);
        fixture.add_controller("ns", "uid-1");
        fixture
    }

    /// A cluster that was polled.
    async fn known(nodes: &[&str]) -> Self {
        let mut fixture = Self::new(nodes);
        fixture.wait_until("known", |view| matches!(view, View::Known(_))).await;
        fixture.slurm.take_requests();
        fixture.take_changes();
        fixture
    }

    /// A cluster that has been polled for so long that it is no longer new.
    async fn settled(nodes: &[&str]) -> Self {
        let mut fixture = Self::known(nodes).await;
        fixture.wait_until("no longer new", |view| matches!(view, View::Known(known) if !known.is_new)).await;
        advance(2).await;
        fixture.slurm.take_requests();
        fixture.take_changes();
        fixture
    }

    fn serve(&self, namespace: &str, restapi: &str, slurm: FakeSlurm) -> Arc<Load> {
        let (load, url) = (Arc::<Load>::default(), format!("http://{restapi}-restapi.{namespace}:6820"));
        self.client_factory.servers.lock().insert(url, Server { slurm, load: load.clone() });
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
        *self.client_factory.key.lock() = key;
    }

    fn key_reads(&self) -> usize {
        self.client_factory.key_reads.load(Relaxed)
    }

    fn view(&self) -> View {
        self.clusters.view(&key("ns"), NO_QUERIES)
    }

    fn cluster(&self) -> Arc<Cluster> {
        self.clusters.cluster(&key("ns")).unwrap()
    }

    /// Reads the view every tenth of a second until `condition` holds, for three minutes at most; returns the time.
    async fn wait_until(&mut self, what: &str, condition: impl Fn(&View) -> bool) -> Duration {
        self.wait_with(NO_QUERIES, what, condition).await
    }

    async fn wait_with(
        &mut self,
        queries: Queries,
        what: &str,
        condition: impl Fn(&View) -> bool,
    ) -> Duration {
        let began = Instant::now();
        loop {
            let view = self.clusters.view(&key("ns"), queries);
            if condition(&view) {
                return began.elapsed();
            }
            assert!(began.elapsed() < seconds(180), "{what}: not within three minutes: {view:?}");
            drop(view);
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The clusters published as changed since the last call.
    fn take_changes(&mut self) -> Vec<ClusterKey> {
        std::iter::from_fn(|| self.changes.next().now_or_never().flatten()).collect()
    }

    /// The time until a change is published.
    async fn until_changed(&mut self) -> Duration {
        let began = Instant::now();
        let changed = tokio::time::timeout(seconds(600), self.changes.next()).await;
        assert_eq!(changed.expect("no change within ten minutes"), Some(key("ns")));
        began.elapsed()
    }

    /// The requests since the last call: method and path without version.
    fn all_requests(&self) -> Vec<String> {
        let requests = self.slurm.take_requests().into_iter();
        let path = |path: &str| path.splitn(4, '/').last().unwrap_or_default().to_owned();
        requests.map(|request| format!("{} {}", request.method, path(&request.path))).collect()
    }

    /// The same without the states of jobs, which accompany every node list.
    fn requests(&self) -> Vec<String> {
        self.all_requests().into_iter().filter(|request| request != "GET jobs/state/").collect()
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

/// The state of a view, for assertions.
fn state(view: &View) -> &'static str {
    match view {
        View::NoRestApi => "not expected",
        View::Unknown { .. } => "unknown",
        View::Known(_) => "known",
    }
}

fn why(view: &View) -> &str {
    match view {
        View::Unknown { why, .. } => why,
        View::NoRestApi | View::Known(_) => panic!("{view:?}"),
    }
}

fn is_known(view: &View) -> bool {
    matches!(view, View::Known(_))
}

fn known(view: View) -> Known {
    match view {
        View::Known(known) => known,
        View::NoRestApi | View::Unknown { .. } => panic!("{view:?}"),
    }
}

fn is_drained(view: &View, node: &str) -> bool {
    matches!(view.lookup(node), NodeLookup::Present(node) if node.is(&NodeState::Drain))
}

fn is_present(view: &View, node: &str) -> bool {
    matches!(view.lookup(node), NodeLookup::Present(_))
}
