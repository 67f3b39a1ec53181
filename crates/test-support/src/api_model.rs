//! An API server in memory, for simulations: real clients send requests to it, and the test injects faults and delays.
//!
//! It implements the rules of a Kubernetes API server that controllers rely on: resource versions and preconditions,
//! patches and server-side apply, finalizers and graceful deletion, ownership. A property test compares it with a real
//! API server (`e2e/tests/api_model.rs`, which also lists what is not modelled). It has no schema: any JSON is valid.
//!
//! It is deterministic: the test sets the clock, and names and UIDs are counted. Clients cannot watch it; a
//! [`LaggingCache`] replaces their caches and receives changes when the test delivers them.

mod deletion;
mod fault;
mod ownership;
mod patch;
mod refusal;
mod routes;
mod selector;
mod store;
mod watch;

pub use fault::{Failure, Fate};
pub use routes::{Call, Verb};
pub use store::Target;
pub use watch::{Change, Cursor, Event, LaggingCache};

use deletion::DeleteOptions;
use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use kube::{Client, Resource};
use ownership::{Owner, Write};
use refusal::Refusal;
use routes::Answer;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::{Part, Store};
use tower::BoxError;

/// An API server in memory. Clones share one server.
#[derive(Clone)]
pub struct ApiModel {
    shared: Arc<Shared>,
}

struct Shared {
    store: Mutex<Store>,
    traffic: Mutex<Traffic>,
    fates: Mutex<Fates>,
}

type Fates = Box<dyn FnMut(&Call) -> Fate + Send>;

#[derive(Default)]
struct Traffic {
    crashed: BTreeSet<String>,
    exchanges: Vec<Exchange>,
}

/// A request and the status of its response.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The request.
    pub call: Arc<Call>,
    /// HTTP status of the response; `None` if the client has not received one.
    pub status: Option<u16>,
}

/// Requests.
impl ApiModel {
    /// A server without objects that reads the time from `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + 'static) -> Self {
        let shared = Shared {
            store: Mutex::new(Store::new(clock)),
            traffic: Mutex::default(),
            fates: Mutex::new(Box::new(|_| Fate::Served)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A client with this name. It does not retry failed requests.
    pub fn client(&self, name: &str) -> Client {
        let name = name.to_owned();
        self.client_named_by(Duration::MAX, move || std::future::ready(name.clone()))
    }

    /// A client each of whose requests calls `sender`, and is sent when its future resolves, under the name that it
    /// returns. It gives up after `timeout`.
    pub fn client_named_by<F>(
        &self,
        timeout: Duration,
        sender: impl Fn() -> F + Send + Sync + 'static,
    ) -> Client
    where
        F: Future<Output = String> + Send + 'static,
    {
        let model = self.clone();
        let service = tower::service_fn(move |request| {
            let (model, sender) = (model.clone(), sender());
            async move {
                let exchange = async { model.exchange(&sender.await, request).await };
                tokio::time::timeout(timeout, exchange).await?
            }
        });
        Client::new(service, "default")
    }

    /// Sets the function that decides the fate of each request. It may write to the model, as a concurrent writer whose
    /// write lands first, and crash clients; it may not call `on_request`.
    pub fn on_request(&self, fate: impl FnMut(&Call) -> Fate + Send + 'static) {
        *self.fates() = Box::new(fate);
    }

    /// Crashes a client: its requests have no effect and get no response.
    pub fn crash(&self, client: &str) {
        self.traffic().crashed.insert(client.to_owned());
    }

    /// Serves a crashed client again. Its earlier requests never get a response.
    pub fn revive(&self, client: &str) {
        self.traffic().crashed.remove(client);
    }

    /// All requests in order of arrival.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.traffic().exchanges.clone()
    }

    async fn exchange(self, client: &str, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let request = routes::Request::parse(client, &parts, body.collect_bytes().await?.into());
        let call = request.call.clone();
        let index = {
            let mut traffic = self.traffic();
            traffic.exchanges.push(Exchange { call: call.clone(), status: None });
            traffic.exchanges.len() - 1
        };
        self.block_if_crashed(client).await;
        let fate = (self.fates())(&call);
        let answer = match fate {
            Fate::Served => request.serve(&mut self.store()),
            Fate::Overtaken => {
                let mut store = self.store();
                store.touch(&call.target);
                request.serve(&mut store)
            }
            Fate::Refused(failure) => failure.to_refusal()?.into(),
            Fate::Misreported(failure) => {
                request.serve(&mut self.store());
                failure.to_refusal()?.into()
            }
            Fate::Lost => pending().await,
            Fate::Late(delay) => {
                let model = self.clone();
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a sent request is served even if its client gave up"
                )]
                let serving = tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    request.serve(&mut model.store())
                });
                serving.await?
            }
        };
        self.block_if_crashed(client).await;
        self.traffic().exchanges[index].status = Some(answer.code);
        Ok(Answer::into_response(answer))
    }

    async fn block_if_crashed(&self, client: &str) {
        let is_crashed = self.traffic().crashed.contains(client);
        if is_crashed {
            pending::<()>().await;
        }
    }
}

/// Access for the test itself: without faults, and with write access to fields that clients cannot set.
impl ApiModel {
    /// Creates or replaces an object. Fields that the server sets are added where they are absent.
    ///
    /// # Panics
    /// If the object has no name, or more than one controller.
    pub fn put<K: Resource<DynamicType = ()>>(&self, object: impl Serialize) -> Arc<Value> {
        let mut object = serde_json::to_value(object).expect("an object is JSON");
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let target = target_of::<K>(text("namespace"), text("name"));
        let mut store = self.store();
        let put = match store.find(&target) {
            None => store.create(&target, Part::Whole, object, &test_write()),
            Some(_) => store.update(&target, Part::Whole, &test_write(), |_| Ok(object)),
        };
        put.unwrap_or_else(|refusal| unreachable!("{refusal:?}"))
    }

    /// Changes an object in place.
    ///
    /// # Panics
    /// If the object does not exist.
    pub fn edit<K>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> Arc<Value>
    where
        K: Resource<DynamicType = ()>,
    {
        let target = target_of::<K>(namespace, name);
        let edited = self.store().update(&target, Part::Whole, &test_write(), |entry| {
            let mut object = Value::clone(&entry.object);
            change(&mut object);
            Ok(object)
        });
        edited.unwrap_or_else(|refusal| unreachable!("{refusal:?}"))
    }

    /// Reads an object. The namespace of a cluster-scoped kind is empty.
    pub fn get<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store().get(&target_of::<K>(namespace, name)).ok()
    }

    /// Reads all objects of a kind in a namespace, or in all namespaces if it is empty, sorted by namespace and name.
    pub fn list<K: Resource<DynamicType = ()>>(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.store().list(&resource_of::<K>(), namespace).cloned().collect()
    }

    /// Removes an object at once, regardless of finalizers. Returns whether it existed.
    pub fn remove<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> bool {
        self.store().remove(&target_of::<K>(namespace, name)).is_some()
    }

    /// Acts as the kubelet: the containers of a terminating pod have ended.
    pub fn finish_deletion(&self, namespace: &str, name: &str) {
        let target = target_of::<Pod>(namespace, name);
        let is_deleted = |entry: &store::Entry| !entry.object["metadata"]["deletionTimestamp"].is_null();
        let mut store = self.store();
        if store.find(&target).is_some_and(is_deleted) {
            // Cannot fail: the pod exists and there are no preconditions.
            let _: Result<_, Refusal> = store.delete(&target, &DeleteOptions::immediate());
        }
    }

    /// Acts as the garbage collector: deletes objects whose owners are all deleted, and their dependents.
    pub fn collect_garbage(&self) {
        self.store().collect_garbage();
    }

    /// Makes a namespace terminating: creates in it are refused.
    pub fn terminate_namespace(&self, namespace: &str) {
        self.store().terminate_namespace(namespace);
    }

    /// All committed changes except the first `from`.
    pub fn history(&self, from: usize) -> Vec<Change> {
        self.store().log.get(from..).unwrap_or_default().to_vec()
    }

    /// Number of committed changes.
    pub fn history_len(&self) -> usize {
        self.store().log.len()
    }

    /// A cursor over the changes of a kind from now on.
    pub fn subscribe<K: Resource<DynamicType = ()>>(&self) -> Cursor {
        Cursor::new(self, resource_of::<K>())
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.shared.store.lock().expect("store")
    }

    fn fates(&self) -> MutexGuard<'_, Fates> {
        self.shared.fates.lock().expect("fates")
    }

    fn traffic(&self) -> MutexGuard<'_, Traffic> {
        self.shared.traffic.lock().expect("traffic")
    }
}

fn test_write() -> Write {
    Write::Update(Owner { manager: "test".into(), applies: false, status: false })
}

fn resource_of<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

fn target_of<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Target {
    Target { resource: resource_of::<K>(), namespace: namespace.to_owned(), name: name.to_owned() }
}
