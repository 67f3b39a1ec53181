//! Worker pods read live: one list for all who asked before it began.

use super::trim_pod;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use slinky_api::labels::{APP_NAME, App};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// How many lists may be under way.
const IN_FLIGHT: usize = 2;
/// How many pods one answer has.
const PAGE: u32 = 500;

type Listed = Result<Vec<Arc<Pod>>, Arc<kube::Error>>;

/// Lists of worker pods.
pub struct LivePods {
    client: Client,
    places: Arc<Semaphore>,
    /// Lists that have not begun, by namespace: who asks now may wait for them.
    waiting: Arc<Mutex<BTreeMap<String, Shared<BoxFuture<'static, Listed>>>>>,
}

impl LivePods {
    /// Lists with this client.
    pub fn new(client: Client) -> Self {
        Self { client, places: Arc::new(Semaphore::new(IN_FLIGHT)), waiting: Arc::default() }
    }

    /// All worker pods of a namespace, by a list that begins after this call.
    pub async fn list(&self, namespace: &str) -> Listed {
        let list = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.entry(namespace.to_owned()).or_insert_with(|| self.begin(namespace)).clone()
        };
        list.await
    }

    /// A list that leaves the waiting ones when it begins.
    fn begin(&self, namespace: &str) -> Shared<BoxFuture<'static, Listed>> {
        let (places, waiting, namespace) = (self.places.clone(), self.waiting.clone(), namespace.to_owned());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let list = async move {
            let _place = places.acquire_owned().await;
            waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&namespace);
            all(&pods).await.map_err(Arc::new)
        };
        list.boxed().shared()
    }
}

async fn all(pods: &Api<Pod>) -> Result<Vec<Arc<Pod>>, kube::Error> {
    let selector = format!("{APP_NAME}={}", NodeSet::NAME);
    let mut params = ListParams::default().labels(&selector).limit(PAGE);
    let mut all = vec![];
    loop {
        let page = pods.list(&params).await?;
        all.extend(page.items.into_iter().map(|mut pod| {
            trim_pod(&mut pod);
            Arc::new(pod)
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}
