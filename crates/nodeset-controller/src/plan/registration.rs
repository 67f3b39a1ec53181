//! Which Slurm node a worker runs: the one with its name, none, or perhaps one with another name.

use super::features::PodInfo;
use crate::slurm::{NodeLookup, View};
use crate::worker::Worker;
use jiff::SignedDuration;
use slurm_rest::{Node, NodeState};
use std::collections::BTreeSet;
use std::net::IpAddr;

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

/// Whether the slurmd of a worker is registered under another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherName {
    /// It is not.
    No,
    /// A node that no pod is known to run may be its own.
    Perhaps,
    /// The list of nodes may be incomplete.
    Unknown,
}

/// The Slurm nodes that respond, and that no pod is known to run. A slurmd registers under another name than that of its
/// worker if a user sets it, or on the host network.
pub struct UnexplainedNodes<'v> {
    nodes: Vec<&'v Node>,
    is_complete: bool,
}

impl<'v> UnexplainedNodes<'v> {
    /// The nodes that neither a worker of this NodeSet nor the pod in their comment explains.
    pub fn new(slurm: &'v View, workers: &[Worker]) -> Self {
        let (mut nodes, is_complete) = (vec![], is_complete(slurm));
        // Almost always all workers are registered, and parsing the comments of all nodes is slow.
        let lacks_node = |worker: &Worker| lacks_node_of_its_name(slurm, worker);
        if let Some(snapshot) = slurm.snapshot().filter(|_| workers.iter().any(lacks_node)) {
            let names: BTreeSet<&str> = workers.iter().map(|worker| worker.slurm_name.as_str()).collect();
            let others = snapshot.nodes.values().filter(|node| !names.contains(node.name.as_str()));
            nodes.extend(others.filter(|node| is_unexplained(node)));
        }
        Self { nodes, is_complete }
    }

    /// Whether the slurmd of a worker that [lacks the node of its name](lacks_node_of_its_name) has registered as one of these.
    pub fn run_by(&self, worker: &Worker) -> OtherName {
        let may_run = |node: &&Node| {
            let times = worker.created.zip(node.slurmd_start_time);
            worker.addresses.contains(&node.address)
                || times.is_none_or(|(created, started)| started + CLOCK_SKEW >= created)
        };
        match (self.nodes.iter().any(may_run), self.is_complete) {
            (true, _) => OtherName::Perhaps,
            (false, true) => OtherName::No,
            (false, false) => OtherName::Unknown,
        }
    }
}

/// Whether a worker certainly does not run the node of its name: there is none, or it is that of a previous pod.
pub fn lacks_node_of_its_name(slurm: &View, worker: &Worker) -> bool {
    match lookup(slurm, worker) {
        NodeLookup::Present(node) => !may_be_at(node, &worker.addresses),
        NodeLookup::Absent => true,
        NodeLookup::Unknown => false,
    }
}

/// Whether a pod with these addresses may run the node of its name. Otherwise the record is that of a previous pod.
pub fn may_be_at(node: &Node, addresses: &[String]) -> bool {
    addresses.is_empty() || node.address.parse::<IpAddr>().is_err() || addresses.contains(&node.address)
}

/// The node that a slurmd at one of these addresses has registered as, if no other pod runs it. The error says why that is
/// not known.
pub fn registered_at<'v>(slurm: &'v View, addresses: &[String]) -> Result<Option<&'v Node>, &'static str> {
    if !is_complete(slurm) {
        return Err("nodes are missing from the list, or may still register");
    }
    let mut nodes = slurm.snapshot().into_iter().flat_map(|snapshot| snapshot.nodes.values());
    Ok(nodes.find(|node| addresses.contains(&node.address) && is_unexplained(node)))
}

/// Whether the list certainly has all nodes. A node that earlier lists had may be missing by mistake, and after a restart of
/// slurmctld or of this process nodes may not be listed yet.
fn is_complete(slurm: &View) -> bool {
    match slurm {
        View::NoRestApi => true,
        View::Unknown { .. } => false,
        View::Known(known) => {
            !known.is_new && known.uncertain.iter().all(|name| known.snapshot.nodes.contains_key(name))
        }
    }
}

fn is_unexplained(node: &Node) -> bool {
    !node.is(&NodeState::NotResponding) && PodInfo::parse(&node.comment).is_none()
}
