//! Which workers stay, are removed or are missing, with one worker on each fitting Kubernetes node.

use super::effect::DeleteReason;
use super::fit::fit;
use super::obstacle::NodeSetObstacle;
use super::removal_order::removal_order;
use super::replicas::{BURST, Disposition, Place, Replicas, finished_reason, remove_other_mode};
use crate::node_facts::{NodeFacts, Nodes, expected_hostname};
use crate::pod_backoff::RetryTimes;
use crate::worker::{Cause, Worker};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::names::check_hostname;
use slinky_api::v1beta1::ScalingMode;
use slinky_api::workers::required_node;
use std::collections::BTreeMap;

/// Decides about the workers of all Kubernetes nodes. `spec` holds the node requirements of a pod; without it no worker
/// is created, or removed for its node.
pub fn daemons(
    workers: &[Worker],
    nodes: &Nodes,
    spec: Option<&PodSpec>,
    retry_times: &RetryTimes,
) -> Replicas {
    let mut replicas = Replicas::default();
    remove_other_mode(&mut replicas, workers, ScalingMode::DaemonSet);
    let mut places: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| worker.mode == Some(ScalingMode::DaemonSet)) {
        let Some(node) = target_of(&worker.pod) else { continue };
        // A finished pod that is being deleted does not occupy its node.
        if !(worker.terminating && worker.is_finished()) {
            places.entry(node).or_default().push(worker);
        }
    }
    for (name, workers) in &places {
        if !nodes.contains_key(*name) {
            // Kubernetes deletes bound pods with their node; unbound ones would stay pending forever.
            let unbound = workers.iter().filter(|worker| worker.node.is_none() && !worker.terminating);
            unbound.for_each(|worker| {
                replicas.set(worker, Disposition::DeleteDirectly(DeleteReason::NodeGone, None));
            });
        }
    }
    let Some(spec) = spec else {
        replicas.desired = places.len();
        return replicas;
    };
    let hostnames = Hostnames::new(nodes, spec, &places);
    for (name, node) in nodes {
        let fit = fit(spec, node);
        let present = places.get(name.as_str());
        // On a node that accepts no new pods, a pod that stays still counts; a terminating one is not replaced.
        let is_kept =
            fit.stay && present.is_some_and(|workers| workers.iter().any(|worker| !worker.terminating));
        replicas.desired += usize::from(fit.run || is_kept);
        match present {
            None if !fit.run => {}
            None => match hostnames.check(node) {
                Ok(_) if replicas.missing.len() < BURST => replicas.missing.push(Place::Node(name.clone())),
                Ok(_) => {}
                Err(unusable) => replicas.unusable_hostnames.push(unusable),
            },
            Some(workers) if fit.stay => {
                keep_one(&mut replicas, workers, hostnames.check(node), retry_times);
            }
            Some(workers) => {
                let running = workers.iter().filter(|worker| !worker.terminating);
                running.for_each(|worker| replicas.remove(worker));
            }
        }
    }
    replicas
}

/// Keeps one of the workers of a Kubernetes node. One with another hostname than the desired one is replaced, if that can
/// be used.
fn keep_one(
    replicas: &mut Replicas,
    workers: &[&Worker],
    hostname: Result<String, NodeSetObstacle>,
    retry_times: &RetryTimes,
) {
    let hostname = hostname.map_err(|unusable| replicas.unusable_hostnames.push(unusable)).ok();
    let mut running = vec![];
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        if worker.is_finished() {
            replicas.set(
                worker,
                Disposition::DeleteDirectly(
                    finished_reason(worker),
                    retry_times.get(&worker.name()).copied(),
                ),
            );
        } else if hostname.as_ref().is_some_and(|hostname| hostname_of(worker) != Some(hostname)) {
            replicas.set(worker, Disposition::Remove(Cause::Update, DeleteReason::Renamed));
        } else {
            running.push(*worker);
        }
    }
    // The worker with a job stays, else the one that would be removed last. They share a Slurm node, so only the
    // mirrored conditions of the pods show which of them has the job.
    running
        .sort_by(|one, other| other.was_busy().cmp(&one.was_busy()).then_with(|| removal_order(other, one)));
    for worker in running.into_iter().skip(1) {
        replicas.set(worker, Disposition::Remove(Cause::ScaleIn, DeleteReason::Unwanted));
    }
}

/// Which Kubernetes node each hostname belongs to. Two slurmds with one name would take each other's jobs.
struct Hostnames<'a>(BTreeMap<String, &'a str>);

impl<'a> Hostnames<'a> {
    /// A hostname belongs to the node whose worker has it, else to the first node by name.
    fn new(nodes: &'a Nodes, spec: &PodSpec, places: &BTreeMap<&str, Vec<&Worker>>) -> Self {
        let mut owners = BTreeMap::new();
        for (name, node) in nodes {
            let hostname = expected_hostname(node);
            let workers = places.get(name.as_str());
            if workers.into_iter().flatten().any(|worker| hostname_of(worker) == Some(&hostname)) {
                owners.insert(hostname, name.as_str());
            } else if workers.is_some() || fit(spec, node).run {
                owners.entry(hostname).or_insert(name.as_str());
            }
        }
        Self(owners)
    }

    /// The hostname for a node, unless it is invalid or belongs to another node.
    fn check(&self, node: &NodeFacts) -> Result<String, NodeSetObstacle> {
        let hostname = expected_hostname(node);
        let problem = match self.0.get(&hostname) {
            Some(owner) if *owner != node.name => format!("Kubernetes node {owner} has it too"),
            _ => match check_hostname(&hostname) {
                Ok(()) => return Ok(hostname),
                Err(problem) => problem.to_owned(),
            },
        };
        Err(NodeSetObstacle::Hostname { node: node.name.clone(), hostname, problem })
    }
}

fn hostname_of(worker: &Worker) -> Option<&String> {
    worker.pod.labels().get(POD_HOSTNAME)
}

/// The Kubernetes node that a pod is bound to, or created for.
pub fn target_of(pod: &Pod) -> Option<&str> {
    let bound = pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty());
    bound.or_else(|| required_node(pod))
}
