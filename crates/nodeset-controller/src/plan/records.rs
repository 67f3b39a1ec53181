//! Which Slurm node records are deleted because neither their pod nor their Kubernetes node exists any more.

use super::effect::Effect;
use super::features::PodInfo;
use crate::node_facts::expected_hostname;
use crate::observe::Observed;
use crate::slurm::View;
use crate::worker::Worker;
use kube::ResourceExt;
use slinky_api::v1beta1::{NodeSet, PruneSlurmNodeRecords, ScalingMode};
use slurm_rest::{Node, NodeState};
use std::collections::BTreeSet;

/// The node records to delete, ordered by name.
pub fn defunct_records(observed: &Observed, workers: &[Worker]) -> Vec<Effect> {
    let spec = &observed.nodeset.spec;
    let is_enabled = spec.prune_slurm_node_records == PruneSlurmNodeRecords::NodeNotFound
        && spec.scaling_mode == ScalingMode::DaemonSet;
    let View::Known(known) = &observed.slurm else { return vec![] };
    if !is_enabled {
        return vec![];
    }
    let certain = known.snapshot.nodes.values().filter(|node| !known.uncertain.contains(&node.name));
    let mut unresponsive =
        certain.filter_map(|node| Some((node, unresponsive_record_of(&observed.nodeset, node)?))).peekable();
    if unresponsive.peek().is_none() {
        return vec![];
    }
    let pods: BTreeSet<_> = workers.iter().filter_map(|worker| worker.pod.metadata.name.as_ref()).collect();
    let slurm_names: BTreeSet<_> = workers.iter().map(|worker| &worker.slurm_name).collect();
    let defunct = unresponsive.filter(|(node, info)| {
        let has_pod = pods.contains(&info.pod_name) || slurm_names.contains(&node.name);
        let has_host =
            observed.nodes.get(&info.node).is_some_and(|host| expected_hostname(host) == node.name);
        !has_pod && !has_host
    });
    let delete = |(node, info): (&Node, PodInfo)| Effect::DeleteNodeRecord {
        node: node.name.clone(),
        pod: info.pod_name,
        host: info.node,
    };
    defunct.map(delete).collect()
}

/// The pod of this NodeSet that a node record belongs to, if its slurmd does not respond.
pub fn unresponsive_record_of(nodeset: &NodeSet, node: &Node) -> Option<PodInfo> {
    // Checked first: almost all nodes respond, and parsing all comments is slow.
    if !node.is(&NodeState::Down) || !node.is(&NodeState::NotResponding) {
        return None;
    }
    let info = PodInfo::parse(&node.comment)?;
    let ours = info.namespace == nodeset.namespace().unwrap_or_default()
        && info.node_set_name == nodeset.name_any()
        && nodeset.uid().is_some_and(|uid| uid == info.node_set_uid);
    let named = !info.pod_name.is_empty() && !info.node.is_empty();
    (ours && named).then_some(info)
}
