//! Whether a worker may be on a Kubernetes node, by the rules that Kubernetes has for it.

mod affinity;
mod taints;

pub use affinity::unreadable_requirement;

use affinity::{Match, match_node};
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint};
use slinky_api::labels::annotations::{FEATURES, HOSTNAME_OVERRIDE, NODE_CORDON_REASON, TOPOLOGY};
use std::collections::BTreeMap;
use taints::{NO_EXECUTE, NO_SCHEDULE, Tolerance, tolerance};

/// The annotations of a Kubernetes node that decisions look at. Others move all the time: programs tell there that they
/// are alive.
const ANNOTATIONS: [&str; 4] = [FEATURES, HOSTNAME_OVERRIDE, NODE_CORDON_REASON, TOPOLOGY];

/// What decisions need of a Kubernetes node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Those of its annotations that decisions look at.
    pub annotations: BTreeMap<String, String>,
    /// What keeps pods away.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Those aspects of its state that may explain a cordon.
    pub conditions: Vec<NodeCondition>,
}

/// One aspect of a node's state, without the heartbeat that moves all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCondition {
    /// Which.
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl NodeFacts {
    /// Reads a node. `propagated` are the types of conditions that explain a cordon.
    pub fn new(node: &Node, propagated: &[String]) -> Self {
        let metadata = &node.metadata;
        let spec = node.spec.as_ref();
        let annotations = metadata.annotations.iter().flatten();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: annotations
                .filter(|(key, _)| ANNOTATIONS.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            conditions: conditions
                .filter(|condition| propagated.contains(&condition.type_))
                .map(|condition| NodeCondition {
                    type_: condition.type_.clone(),
                    status: condition.status.clone(),
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                })
                .collect(),
        }
    }
}

/// What a pod may do on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Come.
    pub run: bool,
    /// Stay, if it is there.
    pub stay: bool,
}

/// Whether a pod that asks for this may come to a node, and stay there.
///
/// Kubernetes itself ends pods whose time on a tainted node is over. Until then they stay, but nobody new comes: it
/// would be gone again soon.
pub fn fit(spec: &PodSpec, node: &NodeFacts) -> Fit {
    let place = match_node(spec, node);
    if place == Match::No {
        return Fit { run: false, stay: false };
    }
    // Whoever is there stays while nobody can say whether it should be.
    let mut fit = Fit { run: place == Match::Yes, stay: true };
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    for taint in node.taints.iter().filter(|taint| [NO_SCHEDULE, NO_EXECUTE].contains(&taint.effect.as_str()))
    {
        let tolerance = tolerance(taint, tolerations);
        fit.run &= tolerance == Tolerance::Forever;
        fit.stay &= tolerance != Tolerance::None || taint.effect != NO_EXECUTE;
    }
    fit
}

/// The hostname of a worker that is alone on its node.
pub fn expected_hostname(node: &NodeFacts) -> String {
    let named = node.annotations.get(HOSTNAME_OVERRIDE).filter(|name| !name.is_empty());
    named.cloned().unwrap_or_else(|| node.name.split('.').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
