//! The part of the cluster that one set of controllers watches: one namespace or all, with caches that are filled before
//! anything is decided from them.

use crate::changed_objects::changed_objects;
use crate::error::chain;
use crate::lock;
use crate::metrics::{KindLabel, METRICS};
use crate::per_object::ObjectKey;
use crate::readable::readable;
use crate::runtime::Runtime;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio_util::sync::CancellationToken;
use tracing::warn;

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
    /// The cache keeps `managedFields`, because [`crate::apply::Applier::apply`] needs them. An object that cannot be
    /// read is told of, and stays as it was.
    pub fn cache<K>(&self, config: watcher::Config) -> (Store<K>, BoxStream<'static, watcher::Result<K>>)
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (store, writer) = reflector::store();
        let (cache, told) = (store.clone(), self.events().clone());
        let events =
            watcher(self.api::<DeserializeGuard<K>>(), config).default_backoff().filter_map(move |event| {
                futures::future::ready(event.map(|event| readable(event, &cache, &told)).transpose())
            });
        (store.clone(), changed_objects(store, self.fill(writer, events)))
    }

    /// A cache of any objects, and what happens to them. `trim` takes out of each object what nobody needs before it is
    /// kept. What comes out of the stream is in the cache already. The stream has to be polled, which a controller does
    /// that it is given to.
    ///
    /// A watch that breaks is logged, counted and begun again with growing delays; the stream itself yields no errors,
    /// because kube would make every other trigger of the controller wait for each of them.
    ///
    /// The process is not ready, and [`Scope::run_controller`] reconciles nothing, before the cache is filled.
    /// ([`Store::wait_until_ready`] is no substitute: of several tasks that wait it wakes one.)
    pub fn cache_of<K: Watched>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        trim: impl Fn(&mut K) + Send + 'static,
    ) -> (Store<K>, BoxStream<'static, watcher::Result<watcher::Event<K>>>) {
        let (store, writer) = reflector::store();
        (store, self.fill(writer, watcher(api, config).default_backoff().modify(trim)))
    }

    /// Passes the events of a watch through a cache.
    fn fill<K: Watched>(
        &self,
        writer: Writer<K>,
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
        let filled = CancellationToken::new();
        lock(&self.filled).push(filled.clone());
        let gate = self.ready_gate(format!("cache of {}", K::kind(&())));
        let events = events.reflect(writer).filter_map(|event| futures::future::ready(without_errors(event)));
        let open = move || {
            gate.open();
            filled.cancel();
        };
        once_listed(events.boxed(), open).map(Ok).boxed()
    }

    /// The objects of one kind that changed, by their metadata, without a cache: for kinds of which there are many, or
    /// whose content is nobody's business, and of which the few that matter are read by name.
    pub fn changes<K>(
        &self,
        config: watcher::Config,
    ) -> BoxStream<'static, watcher::Result<PartialObjectMeta<K>>>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        self.metadata_events(config).touched_objects().boxed()
    }

    /// The same with the beginnings and ends of lists, for those who keep something of what they read by name: of an
    /// object that went while the watch was broken, only its absence in the next list tells.
    pub fn metadata_events<K>(
        &self,
        config: watcher::Config,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<PartialObjectMeta<K>>>>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let events = watcher(self.api::<PartialObjectMeta<K>>(), config)
            .default_backoff()
            .filter_map(|event| futures::future::ready(without_errors(event)));
        events.map(Ok).boxed()
    }

    /// Resolves when all caches are filled that were made by now.
    pub(crate) async fn caches_filled(&self) {
        let caches = lock(&self.filled).clone();
        for filled in caches {
            filled.cancelled().await;
        }
    }
}

/// Calls `then` when the first list has been handed on to its end: when the next event is asked for, so that whoever keeps
/// something of the events, too, has all of it.
fn once_listed<K: Watched>(
    mut events: BoxStream<'static, watcher::Event<K>>,
    then: impl FnOnce() + Send + 'static,
) -> impl Stream<Item = watcher::Event<K>> + Send + 'static {
    let (mut is_listed, mut then) = (false, Some(then));
    stream::poll_fn(move |context| {
        if is_listed && let Some(then) = then.take() {
            then();
        }
        let next = events.poll_next_unpin(context);
        is_listed |= matches!(next, Poll::Ready(Some(watcher::Event::InitDone)));
        next
    })
}

/// The changes of a cached kind that matter: those that change the facts of an object, and its end. Most writes to custom
/// resources are of their status, which most others do not look at.
pub fn changed_by<K: Watched, F: PartialEq + Send + 'static>(
    changes: BoxStream<'static, watcher::Result<K>>,
    cache: Store<K>,
    facts: impl Fn(&K) -> F + Send + 'static,
) -> BoxStream<'static, watcher::Result<K>> {
    let mut known = BTreeMap::new();
    let matters = move |object: &K| {
        let reference = ObjectRef::from_obj(object);
        let key = ObjectKey::of(object);
        if cache.get(&reference).is_none() {
            known.remove(&key);
            return true;
        }
        let facts = (object.meta().uid.clone(), object.meta().deletion_timestamp.is_some(), facts(object));
        let is_news = known.get(&key) != Some(&facts);
        known.insert(key, facts);
        is_news
    };
    let matters = Mutex::new(matters);
    changes
        .filter(move |change| {
            futures::future::ready(change.as_ref().map_or(true, |object| (*lock(&matters))(object)))
        })
        .boxed()
}

/// The changes of a cached kind that change the spec of an object, and its end.
pub fn spec_changes<K: Watched>(
    changes: BoxStream<'static, watcher::Result<K>>,
    cache: Store<K>,
) -> BoxStream<'static, watcher::Result<K>> {
    changed_by(changes, cache, |object| object.meta().generation)
}

/// An object in a cache, by namespace and name.
pub fn find<K: Watched>(cache: &Store<K>, namespace: &str, name: &str) -> Option<Arc<K>> {
    cache.get(&ObjectRef::new(name).within(namespace))
}

/// An object in a cache, or, where the cache may be behind, as the API server has it.
///
/// For objects from which the next version of themselves is made: one that was overlooked would be overwritten. The read
/// is only made while there is nothing in the cache, which for a child is until it is made.
pub async fn cached_or_live<K>(
    cache: &Store<K>,
    client: Client,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<K>>, kube::Error>
where
    K: Watched + Resource<Scope = NamespaceResourceScope>,
{
    match find(cache, namespace, name) {
        Some(object) => Ok(Some(object)),
        None => Ok(Api::namespaced(client, namespace).get_opt(name).await?.map(Arc::new)),
    }
}

/// The objects in a cache that refer to `changed`, which is in their namespace; `refers` is asked with its name.
pub fn referrers<K: Watched, C: Resource>(
    cache: &Store<K>,
    changed: &C,
    refers: impl Fn(&K, &str) -> bool,
) -> Vec<ObjectRef<K>> {
    let (namespace, name) = (changed.namespace(), changed.name_any());
    cache
        .state()
        .iter()
        .filter(|object| object.namespace() == namespace && refers(object, &name))
        .map(|object| ObjectRef::from_obj(object.as_ref()))
        .collect()
}

/// Logs and counts the errors of a watch, and passes on the rest.
fn without_errors<K: Watched>(event: watcher::Result<watcher::Event<K>>) -> Option<watcher::Event<K>> {
    event
        .inspect_err(|error| {
            let kind = K::kind(&()).into_owned();
            warn!(kind, error = chain(error), "A watch broke and is begun again");
            METRICS.watch_errors.get_or_create(&KindLabel { kind }).inc();
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{cached_or_live, once_listed, spec_changes, without_errors};
    use crate::metrics::{KindLabel, METRICS};
    use crate::references::tests::server;
    use futures::{FutureExt, StreamExt};
    use k8s_openapi::api::core::v1::{Endpoints, Secret};
    use kube::ResourceExt;
    use kube::runtime::{reflector, watcher};
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn secret(generation: i64, note: &str) -> Secret {
        let metadata = json!({ "name": "a", "namespace": "ns", "uid": "u", "generation": generation,
            "annotations": { "note": note } });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[tokio::test]
    async fn only_news_and_the_end_of_an_object_get_through() {
        let (store, mut writer) = reflector::store::<Secret>();
        let (sender, changes) = futures::channel::mpsc::unbounded();
        let mut stream = spec_changes(changes.boxed(), store);
        let mut passes = |event: watcher::Event<Secret>| {
            writer.apply_watcher_event(&event);
            if let watcher::Event::Apply(object) | watcher::Event::Delete(object) = event {
                sender.unbounded_send(Ok(object)).unwrap();
            }
            stream.next().now_or_never().is_some()
        };
        assert!(passes(watcher::Event::Apply(secret(1, ""))), "a new object");
        assert!(!passes(watcher::Event::Apply(secret(1, "other"))), "nothing that matters");
        assert!(passes(watcher::Event::Apply(secret(2, "other"))), "another spec");
        assert!(passes(watcher::Event::Delete(secret(2, "other"))), "its end");
        assert!(passes(watcher::Event::Apply(secret(2, "other"))), "its return");
    }

    #[tokio::test]
    async fn a_cache_counts_as_filled_when_all_who_listen_have_had_the_end_of_the_list() {
        let (sender, events) = futures::channel::mpsc::unbounded();
        let filled = Arc::new(AtomicBool::default());
        let told = filled.clone();
        let mut stream = once_listed(events.boxed(), move || told.store(true, Ordering::Relaxed));
        for event in
            [watcher::Event::Init, watcher::Event::InitApply(secret(1, "")), watcher::Event::InitDone]
        {
            sender.unbounded_send(event).unwrap();
            assert!(stream.next().await.is_some());
            assert!(!filled.load(Ordering::Relaxed), "somebody may still be at it");
        }
        assert!(stream.next().now_or_never().is_none());
        assert!(filled.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn what_a_cache_does_not_have_is_read_and_what_it_has_is_not() {
        let (store, mut writer) = reflector::store::<Secret>();
        let (client, asked) = server(200, &serde_json::to_value(secret(2, "read")).unwrap());
        let note = |found: Option<Arc<Secret>>| found.unwrap().annotations()["note"].clone();
        let read = cached_or_live(&store, client.clone(), "ns", "a").await.unwrap();
        assert_eq!((note(read), asked.load(Ordering::Relaxed)), ("read".to_owned(), 1));
        writer.apply_watcher_event(&watcher::Event::Apply(secret(1, "cached")));
        let cached = cached_or_live(&store, client, "ns", "a").await.unwrap();
        assert_eq!((note(cached), asked.load(Ordering::Relaxed)), ("cached".to_owned(), 1));
    }

    #[test]
    fn errors_of_a_watch_are_counted_under_its_own_kind_and_go_no_further() {
        assert!(without_errors::<Endpoints>(Ok(watcher::Event::Init)).is_some());
        assert!(without_errors::<Endpoints>(Err(watcher::Error::NoResourceVersion)).is_none());
        let kind = KindLabel { kind: "Endpoints".into() };
        assert_eq!(METRICS.watch_errors.get_or_create(&kind).get(), 1);
    }
}
