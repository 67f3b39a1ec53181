//! What a Slurm node should say of its pod and its Kubernetes node: features, place in the network, and who it is.

use crate::slurm::NodeLookup;
use crate::worker::Worker;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use slinky_api::labels::FEATURE_PREFIX;
use slinky_api::v1beta1::NodeSet;
use slurm_rest::Node;
use std::collections::BTreeSet;

/// The features that a node should have, available and active, where it has others. `annotation` is what its Kubernetes
/// node lists, separated by commas. Features without our prefix are somebody else's and stay.
pub fn desired_features(node: &Node, annotation: Option<&str>) -> Option<(Vec<String>, Vec<String>)> {
    let listed =
        annotation.unwrap_or_default().split(',').map(str::trim).filter(|feature| !feature.is_empty());
    let ours: BTreeSet<_> = listed.map(|feature| format!("{FEATURE_PREFIX}{feature}")).collect();
    let available = with_ours(&node.features, &ours);
    let active = with_ours(&node.active_features, &ours);
    let in_sync = available == cleaned(&node.features) && active == cleaned(&node.active_features);
    (!in_sync).then(|| (available.into_iter().collect(), active.into_iter().collect()))
}

fn with_ours(present: &[String], ours: &BTreeSet<String>) -> BTreeSet<String> {
    let others = cleaned(present).into_iter().filter(|feature| !feature.starts_with(FEATURE_PREFIX));
    others.chain(ours.iter().cloned()).collect()
}

fn cleaned(features: &[String]) -> BTreeSet<String> {
    let features = features.iter().map(|feature| feature.trim());
    features.filter(|feature| !feature.is_empty()).map(str::to_owned).collect()
}

/// The topology that a node should have, where it has another. `host` is what its Kubernetes node says, and `told` what
/// its pod says that we said before.
///
/// Slurm takes a node without topology out of its network. So only a topology that came from us is ever taken back.
pub fn desired_topology(node: &Node, host: Option<&str>, told: Option<&str>) -> Option<String> {
    let wanted = match (host.unwrap_or_default(), told.unwrap_or_default()) {
        ("", "") => return None,
        (wanted, _) => wanted,
    };
    (node.topology != wanted).then(|| wanted.to_owned())
}

/// What a pod should say of its topology. It remembers the one that we gave until Slurm is seen without it.
pub fn told_topology<'a>(host: Option<&'a str>, told: Option<&'a str>, slurm: NodeLookup<'_>) -> &'a str {
    let host = host.unwrap_or_default();
    let taken_back = match slurm {
        NodeLookup::Unknown => false,
        NodeLookup::Absent => true,
        NodeLookup::Present(node) => node.topology.is_empty(),
    };
    if host.is_empty() && !taken_back { told.unwrap_or_default() } else { host }
}

/// Who a Slurm node is in Kubernetes, as its comment says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodInfo {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod_name: String,
    /// Its Kubernetes node.
    pub node: String,
    /// Its NodeSet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_set_name: String,
    /// The identity of that.
    #[serde(rename = "nodeSetUID", skip_serializing_if = "String::is_empty")]
    pub node_set_uid: String,
}

impl PodInfo {
    /// Who a worker on this Kubernetes node is.
    pub fn of(nodeset: &NodeSet, worker: &Worker, node: &str) -> Self {
        Self {
            namespace: worker.pod.namespace().unwrap_or_default(),
            pod_name: worker.name(),
            node: node.to_owned(),
            node_set_name: nodeset.name_any(),
            node_set_uid: nodeset.uid().unwrap_or_default(),
        }
    }

    /// Reads a comment; `None` if it is about something else.
    pub fn parse(comment: &str) -> Option<Self> {
        serde_json::from_str(comment).ok()
    }

    /// Whether a comment says this, in whatever form.
    pub fn is_in(&self, comment: &str) -> bool {
        Self::parse(comment).is_some_and(|said| said == *self)
    }

    /// The comment that says this.
    pub fn to_comment(&self) -> String {
        // Texts alone can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
