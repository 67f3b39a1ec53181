//! The part of the cluster that one set of controllers watches: one namespace or all, with caches that are filled before
//! anything is decided from them.

use crate::lock;
use crate::runtime::Runtime;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// The runtime, narrowed to one namespace or to all.
#[derive(Clone)]
pub struct Scope {
    runtime: Runtime,
    namespace: Option<String>,
    /// One for each cache, cancelled when it is filled.
    filled: Arc<Mutex<Vec<CancellationToken>>>,
}

/// What can be watched.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl Deref for Scope {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

impl Scope {
    pub(crate) fn new(runtime: Runtime, namespace: Option<String>) -> Self {
        Self { runtime, namespace, filled: Arc::default() }
    }

    /// The objects of one kind in this scope, for watches and lists. To write, take the object's own namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client(), namespace),
            None => Api::all(self.client()),
        }
    }

    /// A controller of one kind. Unlike [`Controller::new`] it notices that an object was deleted, so that what is
    /// remembered of it can be dropped.
    pub fn controller<K>(&self, config: watcher::Config) -> Controller<K>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (store, changes) = self.cache(config);
        Controller::for_stream(changes, store)
    }

    /// A cache of one kind in this scope, and the objects that changed: what [`Controller::owns_stream`] and
    /// `watches_stream` take.
    ///
    /// The cache keeps `managedFields`, because [`crate::apply::Applier::apply`] needs them.
    pub fn cache<K>(
        &self,
        config: watcher::Config,
    ) -> (Store<K>, impl Stream<Item = watcher::Result<K>> + Send + 'static + use<K>)
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (store, events) = self.cache_of(self.api(), config);
        (store, events.touched_objects())
    }

    /// A cache of any objects, and what happens to them. What comes out of the stream is in the cache already. The
    /// stream has to be polled, which a controller does that it is given to.
    ///
    /// The process is not ready, and [`Scope::run_controller`] reconciles nothing, before the cache is filled.
    /// ([`Store::wait_until_ready`] is no substitute: of several tasks that wait it wakes one.)
    pub fn cache_of<K: Watched>(
        &self,
        api: Api<K>,
        config: watcher::Config,
    ) -> (Store<K>, impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static + use<K>) {
        let (store, writer) = reflector::store();
        let filled = CancellationToken::new();
        lock(&self.filled).push(filled.clone());
        let mut gate = Some(self.ready_gate(format!("cache of {}", K::kind(&()))));
        let events = watcher(api, config).default_backoff().reflect(writer).inspect_ok(move |event| {
            if matches!(event, watcher::Event::InitDone)
                && let Some(gate) = gate.take()
            {
                gate.open();
                filled.cancel();
            }
        });
        (store, events.boxed())
    }

    /// Resolves when all caches are filled that were made by now.
    pub(crate) async fn caches_filled(&self) {
        let caches = lock(&self.filled).clone();
        for filled in caches {
            filled.cancelled().await;
        }
    }
}
