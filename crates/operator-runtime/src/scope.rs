//! The scope of a set of controllers: one namespace or all of them, with caches that are filled before the first
//! reconcile.

use crate::changed_objects::changed_objects;
use crate::error::chain;
use crate::metrics::{KindLabel, METRICS};
use crate::per_object::ObjectKey;
use crate::readable::readable;
use crate::runtime::Runtime;
use crate::watched::Watched;
use futures::future::try_join_all;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// The runtime for one namespace or for all of them.
#[derive(Clone)]
pub struct Scope {
    runtime: Runtime,
    namespace: Option<String>,
    /// One token per cache, cancelled when the cache is filled.
    filled: Arc<Mutex<Vec<CancellationToken>>>,
}

impl Deref for Scope {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        &self.runtime
    }
}

/// The watch events of the metadata of one kind.
pub type MetadataEvents<K> = BoxStream<'static, watcher::Result<watcher::Event<PartialObjectMeta<K>>>>;

/// A cache that several scopes share. Clones share it too.
#[derive(Clone)]
pub struct SharedCache<K: Watched> {
    store: Store<K>,
    filled: CancellationToken,
}

impl<K: Watched> SharedCache<K> {
    /// The cached objects.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }
}

impl Runtime {
    /// As [`Scope::cache_of`], for objects that all scopes read: one watch, and one copy of each object. A scope has to
    /// [wait for it](Scope::wait_for).
    pub fn shared_cache<K: Watched>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        trim: impl Fn(&mut K) + Send + 'static,
    ) -> (SharedCache<K>, BoxStream<'static, watcher::Result<watcher::Event<K>>>) {
        let (store, writer) = reflector::store();
        let filled = CancellationToken::new();
        let events = watcher(api, config).default_backoff().modify(trim);
        let events = fill(self, writer, events, filled.clone());
        (SharedCache { store, filled }, events)
    }

    /// Runs `run` once for all namespaces, or concurrently for each namespace of `--namespaces`.
    ///
    /// kube watches one namespace or all of them. Each namespace has its own watches, caches and controllers, so that a
    /// namespace that cannot be listed does not stop the others and is never mistaken for an empty one. State that the
    /// namespaces share (connections, a watch of Nodes) is created before and cloned into `run`.
    pub async fn for_each_scope<F, R>(&self, run: F) -> anyhow::Result<()>
    where
        F: Fn(Scope) -> R,
        R: Future<Output = anyhow::Result<()>>,
    {
        let scopes = self.args().namespaces.scopes();
        let runs = scopes.into_iter().map(|namespace| run(Scope::of(self.clone(), namespace)));
        try_join_all(runs).await.map(drop)
    }
}

impl Scope {
    pub(crate) fn of(runtime: Runtime, namespace: Option<String>) -> Self {
        Self { runtime, namespace, filled: Arc::default() }
    }

    /// The API of one kind in this scope, for watches and lists. Writes use the namespace of the object.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client(), namespace),
            None => Api::all(self.client()),
        }
    }

    /// A controller of one kind. Unlike [`Controller::new`] it also enqueues deleted objects, which kube reports as
    /// `ObjectNotFound`, so that their state can be dropped.
    pub fn controller<K>(&self, config: watcher::Config) -> Controller<K>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (store, changes) = self.cache(config);
        Controller::for_stream(changes, store)
    }

    /// A cache of one kind in this scope, and the stream of changed objects for [`Controller::owns_stream`] or
    /// `watches_stream`.
    ///
    /// The cache keeps `managedFields`, because [`crate::apply::Applier::apply`] needs them. An object that cannot be
    /// deserialised is reported, and its last readable version stays in the cache.
    pub fn cache<K>(&self, config: watcher::Config) -> (Store<K>, BoxStream<'static, watcher::Result<K>>)
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (store, writer) = reflector::store();
        let (cache, reporter) = (store.clone(), self.events().clone());
        let events =
            watcher(self.api::<DeserializeGuard<K>>(), config).default_backoff().filter_map(move |event| {
                futures::future::ready(event.map(|event| readable(event, &cache, &reporter)).transpose())
            });
        (store.clone(), changed_objects(store, self.fill(writer, events)))
    }

    /// A cache of any objects, and the stream of their watch events. `trim` removes unused fields from each object
    /// before it is cached. The cache is updated before the stream yields the event. The stream has to be polled,
    /// usually by the controller that it is passed to.
    ///
    /// A watch that fails is logged, counted and restarted with backoff. The stream itself yields no errors, because
    /// kube would delay every other trigger of the controller for each of them.
    ///
    /// The process is not ready, and [`Scope::run_controller`] does not start reconciles, before the cache is filled.
    /// ([`Store::wait_until_ready`] is no substitute: it wakes only one of several waiting tasks.)
    pub fn cache_of<K: Watched>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        trim: impl Fn(&mut K) + Send + 'static,
    ) -> (Store<K>, BoxStream<'static, watcher::Result<watcher::Event<K>>>) {
        self.cache_from(watcher(api, config).default_backoff().modify(trim))
    }

    /// As [`Scope::cache_of`], from the events of a watch.
    pub fn cache_from<K: Watched>(
        &self,
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    ) -> (Store<K>, BoxStream<'static, watcher::Result<watcher::Event<K>>>) {
        let (store, writer) = reflector::store();
        (store, self.fill(writer, events))
    }

    /// Applies the events of a watch to a cache.
    fn fill<K: Watched>(
        &self,
        writer: Writer<K>,
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
        let filled = CancellationToken::new();
        self.filled.lock().push(filled.clone());
        fill(self, writer, events, filled)
    }

    /// Starts no reconcile in this scope before the cache is filled.
    pub fn wait_for<K: Watched>(&self, cache: &SharedCache<K>) {
        self.filled.lock().push(cache.filled.clone());
    }

    /// The metadata of changed objects of one kind: for kinds with many or confidential objects, of which the few that
    /// are referenced are read by name.
    pub fn changes<K>(
        &self,
        config: watcher::Config,
    ) -> BoxStream<'static, watcher::Result<PartialObjectMeta<K>>>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (cache, events) = self.metadata(config);
        changed_objects(cache, events)
    }

    /// A cache of the metadata of one kind, and the stream of its watch events. Annotations are not kept: they may be
    /// large. Reconciles do not wait for it: an object that appears later enqueues those that refer to it.
    pub fn metadata<K>(&self, config: watcher::Config) -> (Store<PartialObjectMeta<K>>, MetadataEvents<K>)
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let (store, writer) = reflector::store();
        let events = watcher(self.api::<PartialObjectMeta<K>>(), config)
            .default_backoff()
            .modify(|object| {
                object.metadata.managed_fields = None;
                object.metadata.annotations = None;
            })
            .reflect(writer)
            .filter_map(|event| futures::future::ready(without_errors(event)));
        (store, events.map(Ok).boxed())
    }

    /// Resolves when all caches that exist by now are filled.
    pub(crate) async fn caches_filled(&self) {
        let caches = self.filled.lock().clone();
        for filled in caches {
            filled.cancelled().await;
        }
    }
}

/// Applies the events of a watch to a cache. The process is not ready, and `filled` is not cancelled, before the first list.
fn fill<K: Watched>(
    runtime: &Runtime,
    writer: Writer<K>,
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    filled: CancellationToken,
) -> BoxStream<'static, watcher::Result<watcher::Event<K>>> {
    let gate = runtime.ready_gate(format!("cache of {}", K::kind(&())));
    let events = events.reflect(writer).filter_map(|event| futures::future::ready(without_errors(event)));
    let open = move || {
        gate.open();
        filled.cancel();
    };
    once_listed(events.boxed(), open).map(Ok).boxed()
}

/// Calls `then` when all events of the first list were processed: on the poll after its last event, because consumers
/// may keep state of the events, too.
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

/// The changes of a cached kind that change the `facts` of an object, and its deletion. Most writes to custom resources
/// change only the status, which most controllers of other kinds do not read.
pub fn changed_by<K: Watched, F: PartialEq + Send + 'static>(
    changes: BoxStream<'static, watcher::Result<K>>,
    cache: Store<K>,
    facts: impl Fn(&K) -> F + Send + 'static,
) -> BoxStream<'static, watcher::Result<K>> {
    let mut known = BTreeMap::new();
    let mut is_relevant = move |object: &K| {
        let reference = ObjectRef::from_obj(object);
        let key = ObjectKey::of(object);
        if cache.get(&reference).is_none() {
            known.remove(&key);
            return true;
        }
        let facts = (object.meta().uid.clone(), object.meta().deletion_timestamp.is_some(), facts(object));
        let is_changed = known.get(&key) != Some(&facts);
        known.insert(key, facts);
        is_changed
    };
    changes
        .filter(move |change| futures::future::ready(change.as_ref().map_or(true, &mut is_relevant)))
        .boxed()
}

/// The changes of a cached kind that change the generation of an object, and its deletion; status writes are ignored.
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

/// The cached object, or a live read if the cache has none.
///
/// For objects whose next version is derived from the current one: an object that is not in the cache yet would be
/// overwritten. A child is only read until it is created and cached.
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

/// The cached objects in the namespace of `changed` that reference it; `refers` gets its name.
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

/// Logs and counts the errors of a watch; yields its events.
fn without_errors<K: Watched>(event: watcher::Result<watcher::Event<K>>) -> Option<watcher::Event<K>> {
    event
        .inspect_err(|error| {
            let kind = K::kind(&()).into_owned();
            warn!(kind, error = chain(error), "Watch failed; restarting with backoff");
            METRICS.watch_errors.get_or_create(&KindLabel { kind }).inc();
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{cached_or_live, once_listed, spec_changes, without_errors};
    use crate::metrics::{KindLabel, METRICS};
    use crate::testing::{scope, server};
    use futures::{FutureExt, StreamExt};
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{Endpoints, Secret};
    use kube::client::Body;
    use kube::runtime::{reflector, watcher};
    use kube::{Client, ResourceExt};
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn secret(generation: i64, note: &str) -> Secret {
        let metadata = json!({ "name": "a", "namespace": "ns", "uid": "u", "generation": generation,
            "annotations": { "note": note } });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[tokio::test]
    async fn spec_changes_passes_new_generations_and_deletions_only() {
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
        assert!(!passes(watcher::Event::Apply(secret(1, "other"))), "the same generation");
        assert!(passes(watcher::Event::Apply(secret(2, "other"))), "a new generation");
        assert!(passes(watcher::Event::Delete(secret(2, "other"))), "the deletion");
        assert!(passes(watcher::Event::Apply(secret(2, "other"))), "the recreated object");
    }

    #[tokio::test]
    async fn cache_is_filled_when_the_event_after_the_list_is_polled() {
        let (sender, events) = futures::channel::mpsc::unbounded();
        let filled = Arc::new(AtomicBool::default());
        let is_filled = filled.clone();
        let mut stream = once_listed(events.boxed(), move || is_filled.store(true, Ordering::Relaxed));
        for event in
            [watcher::Event::Init, watcher::Event::InitApply(secret(1, "")), watcher::Event::InitDone]
        {
            sender.unbounded_send(event).unwrap();
            assert!(stream.next().await.is_some());
            assert!(!filled.load(Ordering::Relaxed), "the consumer may still process the event");
        }
        assert!(stream.next().now_or_never().is_none());
        assert!(filled.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn live_read_happens_only_if_the_object_is_not_cached() {
        let (store, mut writer) = reflector::store::<Secret>();
        let (client, requests) = server(200, &serde_json::to_value(secret(2, "read")).unwrap());
        let note = |found: Option<Arc<Secret>>| found.unwrap().annotations()["note"].clone();
        let read = cached_or_live(&store, client.clone(), "ns", "a").await.unwrap();
        assert_eq!((note(read), requests.load(Ordering::Relaxed)), ("read".to_owned(), 1));
        writer.apply_watcher_event(&watcher::Event::Apply(secret(1, "cached")));
        let cached = cached_or_live(&store, client, "ns", "a").await.unwrap();
        assert_eq!((note(cached), requests.load(Ordering::Relaxed)), ("cached".to_owned(), 1));
    }

    /// A server whose list has one Secret less each time, and whose watch reports that its version is too old.
    fn shrinking_server() -> Client {
        let mut left = vec!["b", "a"];
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let answer = if is_watch {
                json!({ "type": "ERROR", "object": { "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "" } })
            } else {
                let item = |name: &&str| json!({ "metadata": { "name": name, "namespace": "ns", "annotations": { "a": "" } } });
                let items: Vec<_> = left.iter().map(item).collect();
                left.pop();
                json!({ "metadata": { "resourceVersion": "1" }, "items": items })
            };
            let response = Response::new(Body::from(answer.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(response) }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_of_an_object_that_a_relist_lacks_is_emitted() {
        let changes = scope(shrinking_server()).changes::<Secret>(watcher::Config::default());
        let names = changes.take(5).map(|object| object.unwrap().name_any()).collect::<Vec<_>>();
        let names = tokio::time::timeout(Duration::from_mins(5), names).await.expect("five changes");
        let mut names = [&names[..2], &names[2..4], &names[4..]].map(<[String]>::to_vec);
        for list in &mut names {
            list.sort();
        }
        assert_eq!(
            names,
            [vec!["a", "b"], vec!["a", "b"], vec!["b"]],
            "a and then b were deleted unobserved"
        );
    }

    #[test]
    fn watch_error_is_counted_by_kind_and_not_yielded() {
        assert!(without_errors::<Endpoints>(Ok(watcher::Event::Init)).is_some());
        assert!(without_errors::<Endpoints>(Err(watcher::Error::NoResourceVersion)).is_none());
        let kind = KindLabel { kind: "Endpoints".into() };
        assert_eq!(METRICS.watch_errors.get_or_create(&kind).get(), 1);
    }
}
