//! Which workers stay, are removed or are missing, with one worker on each fitting Kubernetes node.

use super::effect::DeleteReason;
use super::fit::fit;
use super::removal_order::removal_order;
use super::replicas::{BURST, Disposition, Place, Replicas, finished_reason, remove_other_mode};
use crate::node_facts::{NodeFacts, Nodes, expected_hostname};
use crate::pod_backoff::RetryTimes;
use crate::worker::{Cause, Worker};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::v1beta1::ScalingMode;
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
    for (name, node) in nodes {
        let fit = fit(spec, node);
        let present = places.get(name.as_str());
        // On a node that accepts no new pods, a pod that stays still counts; a terminating one is not replaced.
        let is_kept =
            fit.stay && present.is_some_and(|workers| workers.iter().any(|worker| !worker.terminating));
        replicas.desired += usize::from(fit.run || is_kept);
        match present {
            None if fit.run && replicas.missing.len() < BURST => {
                replicas.missing.push(Place::Node(name.clone()));
            }
            None => {}
            Some(workers) if fit.stay => keep_one(&mut replicas, workers, node, retry_times),
            Some(workers) => {
                let running = workers.iter().filter(|worker| !worker.terminating);
                running.for_each(|worker| replicas.remove(worker));
            }
        }
    }
    replicas
}

/// Keeps one of the workers of a Kubernetes node.
fn keep_one(replicas: &mut Replicas, workers: &[&Worker], node: &NodeFacts, retry_times: &RetryTimes) {
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
        } else if worker.pod.labels().get(POD_HOSTNAME) != Some(&expected_hostname(node)) {
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

/// The Kubernetes node that a pod is bound to, or created for.
pub fn target_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    match names.next()?.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}
