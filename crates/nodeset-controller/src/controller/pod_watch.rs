//! The watch of worker pods. It begins again with other selectors when this replica gains or loses clusters.

use crate::cache::{Exclusion, PodSelection};
use crate::coordination::Coordination;
use crate::slurm::ClusterKey;
use crate::timing::POD_SELECTION_CHECK;
use futures::stream::{self, StreamExt};
use futures::{Stream, future};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::reflector::Store;
use kube::runtime::{WatchStreamExt, watcher};
use slinky_api::v1beta1::NodeSet;
use std::sync::Arc;
use tracing::debug;

/// The watch of all worker pods but those of NodeSets that other replicas own.
///
/// Gained pods are listed as soon as a reconcile needs them. Lost ones stay in the cache until the next check: replicas
/// that are restarted one after the other should not cause a list each time.
pub fn watch_pods(
    api: Api<Pod>,
    nodesets: Store<NodeSet>,
    coordination: Coordination,
    selection: Arc<PodSelection>,
) -> impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Send + 'static {
    let foreign = Arc::new(move || foreign_pods(&nodesets, &coordination));
    stream::repeat_with(move || {
        let exclusion = foreign();
        debug!(?exclusion, "Watch of pods begins");
        selection.begin(exclusion.clone());
        let (foreign, selection) = (foreign.clone(), selection.clone());
        let outdated = async move {
            let shrunk = async {
                loop {
                    tokio::time::sleep(POD_SELECTION_CHECK).await;
                    if selection.would_shrink(&foreign()) {
                        break;
                    }
                }
            };
            future::select(Box::pin(selection.outdated()), Box::pin(shrunk)).await;
        };
        watcher(api.clone(), exclusion.config()).default_backoff().take_until(Box::pin(outdated))
    })
    .flatten()
}

/// The pods that other replicas work on.
pub fn foreign_pods(nodesets: &Store<NodeSet>, coordination: &Coordination) -> Exclusion {
    let ownership = coordination.ownership();
    // Before the first membership no replica is known to own anything.
    if !ownership.is_known() {
        return Exclusion::default();
    }
    let nodesets = nodesets.state();
    let is_owned = |nodeset: &NodeSet| ownership.owns(&ClusterKey::of(nodeset).to_string());
    Exclusion::of(nodesets.iter().map(AsRef::as_ref), is_owned)
}
