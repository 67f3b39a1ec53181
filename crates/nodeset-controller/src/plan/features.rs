//! Slurm node attributes that come from the pod and its Kubernetes node: features, topology, and the comment with the
//! pod's identity.

use crate::slurm::NodeLookup;
use crate::worker::Worker;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use slinky_api::labels::FEATURE_PREFIX;
use slinky_api::v1beta1::NodeSet;
use slurm_rest::Node;
use std::collections::BTreeSet;

/// The desired available and active features of a Slurm node, if they differ. `annotation` is the comma-separated list
/// of its Kubernetes node. Features without our prefix are set by others and stay.
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

/// The desired topology of a Slurm node, if it differs. `host` is the annotation of its Kubernetes node, `recorded` the
/// one of its pod: the topology that the operator has set.
///
/// Slurm removes a node without topology from its network. So only a topology set by the operator is ever cleared. Where
/// slurmrestd shows no topology, it takes none either.
pub fn desired_topology(node: &Node, host: Option<&str>, recorded: Option<&str>) -> Option<String> {
    let desired = match (host.unwrap_or_default(), recorded.unwrap_or_default()) {
        ("", "") => return None,
        (desired, _) => desired,
    };
    node.topology.as_ref().filter(|current| *current != desired).map(|_| desired.to_owned())
}

/// The topology to record on a pod. The one that the operator set stays recorded until Slurm no longer has it.
pub fn recorded_topology<'a>(
    host: Option<&'a str>,
    recorded: Option<&'a str>,
    slurm: NodeLookup<'_>,
) -> &'a str {
    let host = host.unwrap_or_default();
    let is_cleared = match slurm {
        NodeLookup::Unknown => false,
        NodeLookup::Absent => true,
        NodeLookup::Present(node) => node.topology.as_ref().is_none_or(String::is_empty),
    };
    if host.is_empty() && !is_cleared { recorded.unwrap_or_default() } else { host }
}

/// The pod of a Slurm node, as stored in the node's comment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodInfo {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod_name: String,
    /// Its Kubernetes node.
    pub node: String,
    /// Its NodeSet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_set_name: String,
    /// UID of the NodeSet.
    #[serde(rename = "nodeSetUID", skip_serializing_if = "String::is_empty")]
    pub node_set_uid: String,
}

impl PodInfo {
    /// The info of a worker on this Kubernetes node.
    pub fn of(nodeset: &NodeSet, worker: &Worker, node: &str) -> Self {
        Self {
            namespace: worker.pod.namespace().unwrap_or_default(),
            pod_name: worker.name(),
            node: node.to_owned(),
            node_set_name: nodeset.name_any(),
            node_set_uid: nodeset.uid().unwrap_or_default(),
        }
    }

    /// Parses a comment; `None` if it has another content.
    pub fn parse(comment: &str) -> Option<Self> {
        serde_json::from_str(comment).ok()
    }

    /// Whether a comment holds this info, in any JSON form.
    pub fn is_in(&self, comment: &str) -> bool {
        Self::parse(comment).is_some_and(|info| info == *self)
    }

    /// The comment with this info.
    pub fn to_comment(&self) -> String {
        // Serializing strings cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
