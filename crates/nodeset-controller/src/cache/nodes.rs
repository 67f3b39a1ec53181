//! Kubernetes nodes, as decisions see them: made anew only when something changed that decisions look at.

use crate::node_facts::{NodeFacts, Nodes};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use std::sync::{Arc, Mutex, PoisonError};

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

    /// What decisions see of a node.
    pub fn facts(&self, node: &Node) -> NodeFacts {
        NodeFacts::new(node, &self.propagated)
    }

    /// Something that matters changed.
    pub fn invalidate(&self) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// All nodes.
    pub fn all(&self) -> Arc<Nodes> {
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let all =
            || self.store.state().iter().map(|node| (node.name_any(), Arc::new(self.facts(node)))).collect();
        facts.get_or_insert_with(|| Arc::new(all())).clone()
    }

    /// Drops what no decision looks at.
    pub fn trim(node: &mut Node) {
        node.metadata.managed_fields = None;
        if let Some(status) = &mut node.status {
            let conditions = status.conditions.take();
            *status = k8s_openapi::api::core::v1::NodeStatus { conditions, ..Default::default() };
        }
    }
}
