//! One watch and one cache of Kubernetes nodes for all namespaces of the process: nodes are the largest objects of the cluster.

use super::mappers::node_changes;
use crate::cache::NodeCache;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use operator_runtime::{Runtime, Scope, SharedCache, changed_objects};
use parking_lot::Mutex;
use std::sync::Arc;

/// The watch of Kubernetes nodes. Clones share it.
#[derive(Clone)]
pub struct NodeWatch {
    cache: SharedCache<Node>,
    facts: NodeCache,
    subscribers: Subscribers,
}

/// The receivers of the names of changed nodes, one per scope.
#[derive(Clone, Default)]
struct Subscribers(Arc<Mutex<Vec<UnboundedSender<String>>>>);

impl NodeWatch {
    /// The watch, and its changes, which have to be [forwarded](Self::forward) once all scopes have subscribed.
    pub fn new(
        runtime: &Runtime,
        propagated_conditions: Arc<[String]>,
    ) -> (Self, BoxStream<'static, watcher::Result<Node>>) {
        let config = watcher::Config::default();
        let (cache, events) = runtime.shared_cache(Api::all(runtime.client()), config, NodeCache::trim);
        let facts = NodeCache::new(cache.store(), propagated_conditions);
        let changes = node_changes(changed_objects(cache.store(), events), cache.store(), facts.clone());
        (Self { cache, facts, subscribers: Subscribers::default() }, changes)
    }

    /// The cache, and the names of nodes that change from now on, for one scope.
    pub fn subscribe(&self, scope: &Scope) -> (NodeCache, UnboundedReceiver<String>) {
        scope.wait_for(&self.cache);
        (self.facts.clone(), self.subscribers.add())
    }

    /// Sends the names of changed nodes to all scopes.
    pub async fn forward(&self, changes: impl Stream<Item = watcher::Result<Node>>) {
        self.subscribers.forward(changes).await;
    }
}

impl Subscribers {
    fn add(&self) -> UnboundedReceiver<String> {
        let (sender, receiver) = unbounded();
        self.0.lock().push(sender);
        receiver
    }

    async fn forward(&self, changes: impl Stream<Item = watcher::Result<Node>>) {
        let send = |node: watcher::Result<Node>| {
            if let Ok(node) = node {
                // A scope that has ended receives nothing.
                self.0.lock().retain(|scope| scope.unbounded_send(node.name_any()).is_ok());
            }
            futures::future::ready(())
        };
        changes.for_each(send).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    fn changes(name: &str) -> impl Stream<Item = watcher::Result<Node>> + use<> {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        stream::iter([Ok(node)])
    }

    #[tokio::test]
    async fn every_scope_receives_every_changed_node_until_it_ends() {
        let subscribers = Subscribers::default();
        let (first, second) = (subscribers.add(), subscribers.add());
        subscribers.forward(changes("a")).await;
        drop(second);
        subscribers.forward(changes("b")).await;
        assert_eq!(subscribers.0.lock().len(), 1);
        drop(subscribers);
        assert_eq!(first.collect::<Vec<_>>().await, ["a", "b"]);
    }
}
