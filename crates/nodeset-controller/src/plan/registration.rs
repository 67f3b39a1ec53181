//! Which Slurm node a worker runs: the one with its name, none, or perhaps one with another name.

use super::features::PodInfo;
use crate::slurm::{NodeLookup, View};
use crate::worker::Worker;
use jiff::SignedDuration;
use slurm_rest::{Node, NodeState};
use std::collections::BTreeSet;

/// By how much the clocks of two machines may differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The Slurm node with the name of a worker. Unknown for a worker in another cluster, whose nodes were not listed.
pub fn lookup<'v>(slurm: &'v View, worker: &Worker) -> NodeLookup<'v> {
    if worker.other_cluster.is_some() {
        NodeLookup::Unknown
    } else if worker.was_registered() {
        slurm.lookup_registered(&worker.slurm_name)
    } else {
        slurm.lookup(&worker.slurm_name)
    }
}

/// Whether Slurm would give a worker a job. Without a RestApi, and while Slurm is unreachable, only its pod counts.
pub fn gets_jobs(slurm: &View, worker: &Worker) -> bool {
    match slurm.snapshot() {
        // Also of a node that was just written to: until the next list this is the best that is known.
        Some(snapshot) if worker.other_cluster.is_none() => {
            snapshot.nodes.get(&worker.slurm_name).is_some_and(Node::accepts_jobs)
        }
        Some(_) | None => true,
    }
}

/// The Slurm nodes that respond, and that no pod is known to run. A slurmd registers under another name than that of its
/// worker if a user sets it, or on the host network.
pub struct UnexplainedNodes<'v>(Vec<&'v Node>);

impl<'v> UnexplainedNodes<'v> {
    /// The nodes that neither a worker of this NodeSet nor the pod in their comment explains.
    pub fn new(slurm: &'v View, workers: &[Worker]) -> Self {
        // Almost always all workers are registered, and parsing the comments of all nodes is slow.
        let is_absent = |worker: &Worker| lookup(slurm, worker) == NodeLookup::Absent;
        let Some(snapshot) = slurm.snapshot().filter(|_| workers.iter().any(is_absent)) else {
            return Self(vec![]);
        };
        let names: BTreeSet<&str> = workers.iter().map(|worker| worker.slurm_name.as_str()).collect();
        let others = snapshot.nodes.values().filter(|node| !names.contains(node.name.as_str()));
        Self(others.filter(|node| is_unexplained(node)).collect())
    }

    /// The node that the slurmd of a worker may have registered as.
    pub fn run_by(&self, worker: &Worker) -> Option<&'v Node> {
        let may_run = |node: &&&Node| {
            let times = worker.created.zip(node.slurmd_start_time);
            times.is_none_or(|(created, started)| started + CLOCK_SKEW >= created)
        };
        let at_its_address = self.0.iter().find(|node| worker.addresses.contains(&node.address));
        at_its_address.or_else(|| self.0.iter().find(may_run)).copied()
    }
}

/// The node that a slurmd at one of these addresses has registered as, if no other pod runs it.
pub fn registered_at<'v>(slurm: &'v View, addresses: &[String]) -> Option<&'v Node> {
    let mut nodes = slurm.snapshot()?.nodes.values();
    nodes.find(|node| addresses.contains(&node.address) && is_unexplained(node))
}

fn is_unexplained(node: &Node) -> bool {
    !node.is(&NodeState::NotResponding) && PodInfo::parse(&node.comment).is_none()
}
