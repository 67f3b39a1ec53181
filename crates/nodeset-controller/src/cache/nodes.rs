//! Facts about Kubernetes nodes, recomputed only after a change that decisions depend on.

use crate::node_facts::{NodeFacts, Nodes};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use std::sync::Arc;

/// A cache of Kubernetes nodes.
#[derive(Clone)]
pub struct NodeCache {
    store: Store<Node>,
    /// Types of conditions that explain a cordon.
    propagated: Arc<[String]>,
    facts: Arc<Mutex<Option<Arc<Nodes>>>>,
}

impl NodeCache {
    /// Facts from this store. `propagated` are the types of conditions that explain a cordon.
    pub fn new(store: Store<Node>, propagated: Arc<[String]>) -> Self {
        Self { store, propagated, facts: Arc::default() }
    }

    /// The facts about one node.
    pub fn facts(&self, node: &Node) -> NodeFacts {
        NodeFacts::new(node, &self.propagated)
    }

    /// Drops the cached facts. To be called after a change that decisions depend on.
    pub fn invalidate(&self) {
        *self.facts.lock() = None;
    }

    /// The facts about all nodes.
    pub fn all(&self) -> Arc<Nodes> {
        let mut facts = self.facts.lock();
        let all =
            || self.store.state().iter().map(|node| (node.name_any(), Arc::new(self.facts(node)))).collect();
        facts.get_or_insert_with(|| Arc::new(all())).clone()
    }

    /// Drops the fields that no decision uses.
    pub fn trim(node: &mut Node) {
        node.metadata.managed_fields = None;
        if let Some(status) = &mut node.status {
            let conditions = status.conditions.take();
            *status = k8s_openapi::api::core::v1::NodeStatus { conditions, ..Default::default() };
        }
    }
}
