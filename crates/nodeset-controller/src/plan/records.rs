//! Which records of Slurm nodes are deleted because neither their pod nor their Kubernetes node exists any more.

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

/// The records to delete, in the order of their names.
pub fn defunct_records(observed: &Observed, workers: &[Worker]) -> Vec<Effect> {
    let spec = &observed.nodeset.spec;
    let wanted = spec.prune_slurm_node_records == PruneSlurmNodeRecords::NodeNotFound
        && spec.scaling_mode == ScalingMode::DaemonSet;
    let View::Known(known) = &observed.slurm else { return vec![] };
    if !wanted {
        return vec![];
    }
    let certain = known.snapshot.nodes.values().filter(|node| !known.uncertain.contains(&node.name));
    let mut abandoned =
        certain.filter_map(|node| Some((node, unresponsive_record_of(&observed.nodeset, node)?))).peekable();
    if abandoned.peek().is_none() {
        return vec![];
    }
    let pods: BTreeSet<_> = workers.iter().filter_map(|worker| worker.pod.metadata.name.as_ref()).collect();
    let slurm_names: BTreeSet<_> = workers.iter().map(|worker| &worker.slurm_name).collect();
    let defunct = abandoned.filter(|(node, info)| {
        let backed = pods.contains(&info.pod_name) || slurm_names.contains(&node.name);
        let hosted = observed.nodes.get(&info.node).is_some_and(|host| expected_hostname(host) == node.name);
        !backed && !hosted
    });
    let forget = |(node, info): (&Node, PodInfo)| Effect::DeleteNodeRecord {
        node: node.name.clone(),
        pod: info.pod_name,
        host: info.node,
    };
    defunct.map(forget).collect()
}

/// The worker of this NodeSet that a record was for, if its slurmd is silent.
pub fn unresponsive_record_of(nodeset: &NodeSet, node: &Node) -> Option<PodInfo> {
    // Asked first: almost all nodes answer, and it takes time to read what all of them say.
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
