//! The polling tasks, one per cluster with a recent reader, and the stream of clusters that changed.

use super::client_factory::{ClientFactory, HttpClientFactory};
use super::cluster::{Cluster, HeldCluster};
use super::poll_schedule::Queries;
use super::view::View;
use super::{ClusterKey, metrics};
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::unfold;
use kube::runtime::reflector::Store;
use operator_runtime::{MissingReference, Scope, find};
use parking_lot::Mutex;
use slinky_api::v1beta1::{Controller, RestApi};
use slurm_rest::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Runs a task in the background until it ends or the process does.
pub type Spawn = Box<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// Whether this replica works on a cluster.
pub type IsOwned = Box<dyn Fn(&ClusterKey) -> bool + Send + Sync>;

/// Dependencies of the polling tasks.
pub struct ClusterDeps {
    /// The Controllers.
    pub controllers: Store<Controller>,
    /// The RestApis.
    pub restapis: Store<RestApi>,
    /// How a slurmrestd is reached.
    pub client_factory: Box<dyn ClientFactory>,
    /// The wall clock.
    pub clock: Clock,
    /// Starts the polling task of a cluster.
    pub spawn: Spawn,
    /// Whether this replica works on a cluster. Others are not polled.
    pub is_owned: IsOwned,
}

/// The clusters with a recent reader. Clones share them.
#[derive(Clone)]
pub struct Clusters(Arc<Shared>);

struct Shared {
    deps: Arc<ClusterDeps>,
    clusters: Mutex<BTreeMap<ClusterKey, Arc<Cluster>>>,
    changed: ChangedClusters,
}

/// A queue of changed clusters that holds each at most once.
#[derive(Default)]
struct ChangedClusters {
    keys: Mutex<BTreeSet<ClusterKey>>,
    added: Notify,
}

impl ChangedClusters {
    fn push(&self, key: &ClusterKey) {
        self.keys.lock().insert(key.clone());
        self.added.notify_one();
    }

    async fn next(&self) -> ClusterKey {
        loop {
            let first = self.keys.lock().pop_first();
            match first {
                Some(key) => return key,
                None => self.added.notified().await,
            }
        }
    }
}

impl Clusters {
    /// The clusters of a scope. `controllers` and `restapis` are its caches.
    pub fn start(
        scope: &Scope,
        controllers: Store<Controller>,
        restapis: Store<RestApi>,
        clock: Clock,
        is_owned: IsOwned,
    ) -> Self {
        let client_factory = HttpClientFactory { client: scope.client(), clock: clock.clone() };
        let scope = scope.clone();
        let spawn = move |task: BoxFuture<'static, ()>| {
            let shutdown = scope.shutdown();
            scope.spawn("slurm cluster", async move {
                tokio::select! {
                    () = task => {}
                    () = shutdown => {}
                }
            });
        };
        Self::new(ClusterDeps {
            controllers,
            restapis,
            client_factory: Box::new(client_factory),
            clock,
            spawn: Box::new(spawn),
            is_owned,
        })
    }

    /// No cluster is polled before its first reader.
    pub fn new(deps: ClusterDeps) -> Self {
        let (clusters, changed) = (Mutex::default(), ChangedClusters::default());
        Self(Arc::new(Shared { deps: Arc::new(deps), clusters, changed }))
    }

    /// The cached view of a cluster, without waiting. The cluster is polled from the first call until minutes after the
    /// last one.
    pub fn view(&self, key: &ClusterKey, queries: Queries) -> View {
        match self.ensure_polled(key, queries) {
            Some(cluster) => cluster.view(),
            None => View::unreachable(MissingReference::Controller(key.controller.clone()).to_string()),
        }
    }

    /// The time since a polled cluster last answered; zero if it is not polled.
    pub fn unreachable_for(&self, key: &ClusterKey) -> Duration {
        let cluster = self.0.clusters.lock().get(key).cloned();
        cluster.map(|cluster| cluster.unreachable_for()).unwrap_or_default()
    }

    /// The cluster itself, for writes and live reads; `None` if the Controller does not exist.
    pub fn cluster(&self, key: &ClusterKey) -> Option<Arc<Cluster>> {
        self.ensure_polled(key, Queries::default())
    }

    /// The cluster for the writes of a batch.
    pub fn hold(&self, key: &ClusterKey) -> Option<HeldCluster> {
        self.cluster(key).map(HeldCluster::new)
    }

    /// To be called when the Controller, a RestApi or the Secret with the signing key may have changed. Without it, a
    /// changed Secret is read only after Slurm refused the old key.
    pub fn refresh(&self, key: &ClusterKey) {
        let cluster = self.0.clusters.lock().get(key).cloned();
        if let Some(cluster) = cluster {
            cluster.refresh();
        }
    }

    /// The clusters that changed: nodes, deadlines of jobs, reservations, reachability, or written nodes that are certain
    /// again. Also clusters without a reader for 4 min, so that the NodeSets that still exist read them. For one
    /// consumer.
    pub fn changes(&self) -> impl Stream<Item = ClusterKey> + Send + use<> {
        unfold(self.clone(), |clusters| async move { Some((clusters.0.changed.next().await, clusters)) })
    }

    /// The cluster of the Controller that exists now. Starts its polling task if there is none.
    fn ensure_polled(&self, key: &ClusterKey, queries: Queries) -> Option<Arc<Cluster>> {
        let uid = find(&self.0.deps.controllers, &key.namespace, &key.controller)?.metadata.uid.clone();
        let mut clusters = self.0.clusters.lock();
        match clusters.get(key) {
            Some(cluster) if cluster.uid == uid => {
                cluster.request(queries);
                return Some(cluster.clone());
            }
            Some(predecessor) => predecessor.close(),
            None => {}
        }
        let cluster = Arc::new(Cluster::new(key.clone(), uid, self.0.deps.clone()));
        cluster.request(queries);
        clusters.insert(key.clone(), cluster.clone());
        drop(clusters);
        (self.0.deps.spawn)(Box::pin(self.clone().poll(cluster.clone())));
        Some(cluster)
    }

    /// The polling task of a cluster.
    async fn poll(self, cluster: Arc<Cluster>) {
        while cluster.advance().await {
            let now = Instant::now();
            if cluster.take_changes(now) {
                self.0.changed.push(&cluster.key);
            }
            if self.remove_if(&cluster, |cluster| cluster.is_idle(now)) {
                return;
            }
        }
        self.remove_if(&cluster, |_| true);
        self.0.changed.push(&cluster.key);
    }

    /// Closes and removes a cluster if `condition` holds, under the lock so that no reader can come in between; returns
    /// whether it did.
    fn remove_if(&self, cluster: &Arc<Cluster>, condition: impl Fn(&Cluster) -> bool) -> bool {
        let mut clusters = self.0.clusters.lock();
        if !condition(cluster) {
            return false;
        }
        cluster.close();
        // A recreated Controller may already have replaced it.
        if clusters.get(&cluster.key).is_some_and(|current| Arc::ptr_eq(current, cluster)) {
            clusters.remove(&cluster.key);
            metrics::remove_cluster(&cluster.key);
        }
        true
    }
}
