//! An API server in memory, for simulations: real clients talk to it, and the test decides what they see and when.
//!
//! It has the rules of a Kubernetes API server that controllers live by: versions and preconditions, patches and
//! server-side apply, finalizers and graceful deletion, ownership. A property test holds it to the real one
//! (`e2e/tests/api_model.rs`, which also says what is left out). It knows no schema: any JSON is a good object.
//!
//! Nothing in it depends on time, chance or the order of tasks: the clock is the test's, names and uids are counted.
//! Clients do not watch it. [`LaggingCache`] takes the place of their caches and learns of changes when it is told.

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
use store::{Part, Store};
use tower::BoxError;

/// An API server in memory. Clones are the same server.
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

/// A request, and what its client heard.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The request.
    pub call: Arc<Call>,
    /// The code of the answer; `None` while there is none.
    pub status: Option<u16>,
}

/// Requests.
impl ApiModel {
    /// A server without objects that takes its time from `clock`.
    pub fn new(clock: impl Fn() -> Timestamp + Send + 'static) -> Self {
        let shared = Shared {
            store: Mutex::new(Store::new(clock)),
            traffic: Mutex::default(),
            fates: Mutex::new(Box::new(|_| Fate::Served)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A client that is known by this name. It does not repeat requests that failed.
    pub fn client(&self, name: &str) -> Client {
        let (model, name) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request| {
            let (model, name) = (model.clone(), name.clone());
            async move { model.exchange(&name, request).await }
        });
        Client::new(service, "default")
    }

    /// Decides from now on what becomes of each request. It may write, as somebody else who comes first, and crash
    /// clients; it may not install its successor.
    pub fn on_request(&self, fate: impl FnMut(&Call) -> Fate + Send + 'static) {
        *self.fates() = Box::new(fate);
    }

    /// Lets a client hear nothing more, and its requests have no effect: as if its process had died.
    pub fn crash(&self, client: &str) {
        self.traffic().crashed.insert(client.to_owned());
    }

    /// Serves a client again. What it asked before is never answered.
    pub fn revive(&self, client: &str) {
        self.traffic().crashed.remove(client);
    }

    /// All requests in the order of their arrival.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.traffic().exchanges.clone()
    }

    async fn exchange(self, client: &str, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let request = routes::Request::read(client, &parts, body.collect_bytes().await?.into());
        let call = request.call.clone();
        let index = {
            let mut traffic = self.traffic();
            traffic.exchanges.push(Exchange { call: call.clone(), status: None });
            traffic.exchanges.len() - 1
        };
        self.unless_crashed(client).await;
        let fate = (self.fates())(&call);
        let answer = match fate {
            Fate::Served => request.serve(&mut self.store()),
            Fate::Refused(failure) => failure.answer()?.into(),
            Fate::Misreported(failure) => {
                request.serve(&mut self.store());
                failure.answer()?.into()
            }
            Fate::Lost => pending().await,
            Fate::Late(delay) => {
                let model = self.clone();
                #[expect(
                    clippy::disallowed_methods,
                    reason = "a request on its way arrives without its client"
                )]
                let serving = tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    request.serve(&mut model.store())
                });
                serving.await?
            }
        };
        self.unless_crashed(client).await;
        self.traffic().exchanges[index].status = Some(answer.code);
        Ok(Answer::into_response(answer))
    }

    async fn unless_crashed(&self, client: &str) {
        let is_crashed = self.traffic().crashed.contains(client);
        if is_crashed {
            pending::<()>().await;
        }
    }
}

/// The test's own hands. They pass by all faults, and by what clients may not write.
impl ApiModel {
    /// Makes an object, or makes it what is given; fields of the server are filled in where they are absent.
    ///
    /// # Panics
    /// If it has no name, or more than one controller.
    pub fn put<K: Resource<DynamicType = ()>>(&self, object: impl Serialize) -> Arc<Value> {
        let mut object = serde_json::to_value(object).expect("an object is JSON");
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let target = target_of::<K>(text("namespace"), text("name"));
        let mut store = self.store();
        let put = match store.find(&target) {
            None => store.create(&target, Part::Whole, object, &by_hand()),
            Some(_) => store.update(&target, Part::Whole, &by_hand(), |_| Ok(object)),
        };
        put.unwrap_or_else(|refusal| unreachable!("{refusal:?}"))
    }

    /// Changes an object in place.
    ///
    /// # Panics
    /// If it is not there.
    pub fn edit<K>(&self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> Arc<Value>
    where
        K: Resource<DynamicType = ()>,
    {
        let target = target_of::<K>(namespace, name);
        let edited = self.store().update(&target, Part::Whole, &by_hand(), |entry| {
            let mut object = Value::clone(&entry.object);
            change(&mut object);
            Ok(object)
        });
        edited.unwrap_or_else(|refusal| unreachable!("{refusal:?}"))
    }

    /// Reads an object; the namespace of kinds without one is empty.
    pub fn get<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store().get(&target_of::<K>(namespace, name)).ok()
    }

    /// Reads all objects of a kind by namespace and name; of all namespaces, if it is empty.
    pub fn list<K: Resource<DynamicType = ()>>(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.store().list(&resource_of::<K>(), namespace).cloned().collect()
    }

    /// Takes an object away, whatever holds it; whether it was there.
    pub fn remove<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> bool {
        self.store().remove(&target_of::<K>(namespace, name)).is_some()
    }

    /// Does the kubelet's part: the containers of a pod that is being deleted have ended.
    pub fn finish_deletion(&self, namespace: &str, name: &str) {
        let target = target_of::<Pod>(namespace, name);
        let is_deleted = |entry: &store::Entry| !entry.object["metadata"]["deletionTimestamp"].is_null();
        let mut store = self.store();
        if store.find(&target).is_some_and(is_deleted) {
            // It is there, and nothing is asked of it.
            let _: Result<_, Refusal> = store.delete(&target, &DeleteOptions::at_once());
        }
    }

    /// Does the garbage collector's part: what has owners that are all gone is deleted, and what hangs on that.
    pub fn collect_garbage(&self) {
        self.store().collect_garbage();
    }

    /// Lets nothing be created in a namespace any more.
    pub fn terminate_namespace(&self, namespace: &str) {
        self.store().terminate_namespace(namespace);
    }

    /// Everything that was committed, from the given place on: the number of changes that are known already.
    pub fn history(&self, from: usize) -> Vec<Change> {
        self.store().log.get(from..).unwrap_or_default().to_vec()
    }

    /// What happens to a kind from now on.
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

fn by_hand() -> Write {
    Write::Update(Owner { manager: "test".into(), applies: false, status: false })
}

fn resource_of<K: Resource<DynamicType = ()>>() -> String {
    let (plural, group) = (K::plural(&()), K::group(&()));
    if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") }
}

fn target_of<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Target {
    Target { resource: resource_of::<K>(), namespace: namespace.to_owned(), name: name.to_owned() }
}
