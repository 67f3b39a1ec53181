//! The clusters that somebody asked about lately, and who is told when something about one changed.

use super::cluster::Cluster;
use super::connect::{Connect, Direct};
use super::poll_schedule::Queries;
use super::view::View;
use super::{ClusterKey, lock, metrics};
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::unfold;
use kube::runtime::reflector::Store;
use operator_runtime::{MissingReference, Scope, find};
use slinky_api::v1beta1::{Controller, RestApi};
use slurm_rest::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Runs something in the background until it ends or the process does.
pub type Spawn = Box<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// What there is to work with.
pub struct ClusterDeps {
    /// The Controllers.
    pub controllers: Store<Controller>,
    /// The RestApis.
    pub restapis: Store<RestApi>,
    /// How a slurmrestd is reached.
    pub connect: Box<dyn Connect>,
    /// Tells the time.
    pub clock: Clock,
    /// Runs the task of a cluster.
    pub spawn: Spawn,
}

/// The clusters that somebody asked about lately. Clones share them.
#[derive(Clone)]
pub struct Clusters(Arc<Shared>);

struct Shared {
    around: Arc<ClusterDeps>,
    clusters: Mutex<BTreeMap<ClusterKey, Arc<Cluster>>>,
    news: News,
}

/// Clusters about which there is something new, each once.
#[derive(Default)]
struct News {
    of: Mutex<BTreeSet<ClusterKey>>,
    any: Notify,
}

impl News {
    fn tell(&self, key: &ClusterKey) {
        lock(&self.of).insert(key.clone());
        self.any.notify_one();
    }

    async fn next(&self) -> ClusterKey {
        loop {
            let told = lock(&self.of).pop_first();
            match told {
                Some(key) => return key,
                None => self.any.notified().await,
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
    ) -> Self {
        let (connect, spawning) = (Direct { client: scope.client(), clock: clock.clone() }, scope.clone());
        let spawn = move |task: BoxFuture<'static, ()>| {
            let shutdown = spawning.shutdown();
            spawning.spawn("slurm cluster", async move {
                tokio::select! {
                    () = task => {}
                    () = shutdown => {}
                }
            });
        };
        Self::new(ClusterDeps {
            controllers,
            restapis,
            connect: Box::new(connect),
            clock,
            spawn: Box::new(spawn),
        })
    }

    /// The clusters of given surroundings.
    pub fn new(around: ClusterDeps) -> Self {
        Self(Arc::new(Shared { around: Arc::new(around), clusters: Mutex::default(), news: News::default() }))
    }

    /// What is known of a cluster now, without waiting. From the first call on, and until minutes after the last, the
    /// cluster is kept in view.
    pub fn view(&self, key: &ClusterKey, wish: Queries) -> View {
        match self.kept(key, wish) {
            Some(cluster) => cluster.view(),
            None => View::unreachable(MissingReference::Controller(key.controller.clone()).to_string()),
        }
    }

    /// For how long a cluster that is kept in view has not answered.
    pub fn unreachable_for(&self, key: &ClusterKey) -> Duration {
        let cluster = lock(&self.0.clusters).get(key).cloned();
        cluster.map(|cluster| cluster.unreachable_for()).unwrap_or_default()
    }

    /// The cluster itself, for writes and for a look; `None` if there is no such Controller.
    pub fn cluster(&self, key: &ClusterKey) -> Option<Arc<Cluster>> {
        self.kept(key, Queries::default())
    }

    /// What leads to a cluster may have changed: its Controller, a RestApi, or the Secret with the signing key. Without
    /// this call, changes of the Secret are noticed only when Slurm refuses the old key.
    pub fn refresh(&self, key: &ClusterKey) {
        let cluster = lock(&self.0.clusters).get(key).cloned();
        if let Some(cluster) = cluster {
            cluster.refresh();
        }
    }

    /// The clusters about which there is something new: nodes, jobs' ends, reservations, whether they can be asked, or
    /// that what was written has been seen. Also, now and then, those of which nobody wanted to know for a while. For
    /// one reader.
    pub fn changes(&self) -> impl Stream<Item = ClusterKey> + Send + use<> {
        unfold(self.clone(), |clusters| async move { Some((clusters.0.news.next().await, clusters)) })
    }

    /// The cluster of the Controller as it is now, kept in view from now on.
    fn kept(&self, key: &ClusterKey, wish: Queries) -> Option<Arc<Cluster>> {
        let uid = find(&self.0.around.controllers, &key.namespace, &key.controller)?.metadata.uid.clone();
        let mut clusters = lock(&self.0.clusters);
        match clusters.get(key) {
            Some(cluster) if cluster.uid == uid => {
                cluster.want(wish);
                return Some(cluster.clone());
            }
            Some(predecessor) => predecessor.end(),
            None => {}
        }
        let cluster = Arc::new(Cluster::new(key.clone(), uid, self.0.around.clone()));
        cluster.want(wish);
        clusters.insert(key.clone(), cluster.clone());
        drop(clusters);
        (self.0.around.spawn)(Box::pin(self.clone().keep_in_view(cluster.clone())));
        Some(cluster)
    }

    /// The task of a cluster.
    async fn keep_in_view(self, cluster: Arc<Cluster>) {
        while cluster.advance().await {
            let now = Instant::now();
            if cluster.has_news(now) {
                self.0.news.tell(&cluster.key);
            }
            if self.release(&cluster, |cluster| cluster.is_unwanted(now)) {
                return;
            }
        }
        self.release(&cluster, |_| true);
        self.0.news.tell(&cluster.key);
    }

    /// Forgets a cluster if `is_over`, which is judged while nobody can come to want it; whether it did.
    fn release(&self, cluster: &Arc<Cluster>, is_over: impl Fn(&Cluster) -> bool) -> bool {
        let mut clusters = lock(&self.0.clusters);
        if !is_over(cluster) {
            return false;
        }
        cluster.end();
        // It may have a successor already.
        if clusters.get(&cluster.key).is_some_and(|kept| Arc::ptr_eq(kept, cluster)) {
            clusters.remove(&cluster.key);
            metrics::forget(&cluster.key);
        }
        true
    }
}
