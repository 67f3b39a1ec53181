//! Live lists of worker pods. Calls that come before a list starts share it.

use super::trim_pod;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use slinky_api::labels::{APP_NAME, App};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Concurrent lists.
const IN_FLIGHT: usize = 2;
/// Pods per page.
const PAGE_SIZE: u32 = 500;

type ListResult = Result<Vec<Arc<Pod>>, Arc<kube::Error>>;

/// Lists of worker pods.
pub struct LivePods {
    client: Client,
    permits: Arc<Semaphore>,
    /// Lists that have not started, by namespace. New calls may share them.
    waiting: Arc<Mutex<BTreeMap<String, Shared<BoxFuture<'static, ListResult>>>>>,
}

impl LivePods {
    /// Lists pods with this client.
    pub fn new(client: Client) -> Self {
        Self { client, permits: Arc::new(Semaphore::new(IN_FLIGHT)), waiting: Arc::default() }
    }

    /// All worker pods of a namespace, from a list that starts after this call.
    pub async fn list(&self, namespace: &str) -> ListResult {
        let list = {
            let mut waiting = self.waiting.lock();
            waiting.entry(namespace.to_owned()).or_insert_with(|| self.queue(namespace)).clone()
        };
        list.await
    }

    /// A list that removes itself from `waiting` when it starts.
    fn queue(&self, namespace: &str) -> Shared<BoxFuture<'static, ListResult>> {
        let (permits, waiting, namespace) =
            (self.permits.clone(), self.waiting.clone(), namespace.to_owned());
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let list = async move {
            let _permit = permits.acquire_owned().await;
            waiting.lock().remove(&namespace);
            list_all(&pods).await.map_err(Arc::new)
        };
        list.boxed().shared()
    }
}

async fn list_all(pods: &Api<Pod>) -> Result<Vec<Arc<Pod>>, kube::Error> {
    let selector = format!("{APP_NAME}={}", NodeSet::NAME);
    let mut params = ListParams::default().labels(&selector).limit(PAGE_SIZE);
    let mut listed = vec![];
    loop {
        let page = pods.list(&params).await?;
        listed.extend(page.items.into_iter().map(|mut pod| {
            trim_pod(&mut pod);
            Arc::new(pod)
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(listed),
        }
    }
}
