//! Who stays, who leaves and who is missing with one worker on each Kubernetes node that fits.

use super::effect::DeleteReason;
use super::fit::fit;
use super::removal_order::removal_order;
use super::replicas::{BURST, Fate, Place, Replicas, leave_old_mode, why_ended};
use crate::node_facts::{NodeFacts, Nodes, expected_hostname};
use crate::pod_backoff::RetryTimes;
use crate::worker::{Cause, Worker};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::v1beta1::ScalingMode;
use std::collections::BTreeMap;

/// Decides about the workers of all Kubernetes nodes. `spec` is what a pod asks of its node; without it nobody comes or
/// goes.
pub fn daemons(
    workers: &[Worker],
    nodes: &Nodes,
    spec: Option<&PodSpec>,
    retry_times: &RetryTimes,
) -> Replicas {
    let mut replicas = Replicas::default();
    leave_old_mode(&mut replicas, workers, ScalingMode::DaemonSet);
    let mut places: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
    for worker in workers.iter().filter(|worker| worker.mode == Some(ScalingMode::DaemonSet)) {
        let Some(node) = target_of(&worker.pod) else { continue };
        // What has ended and is being deleted is as good as gone.
        if !(worker.terminating && worker.is_finished()) {
            places.entry(node).or_default().push(worker);
        }
    }
    for (name, workers) in &places {
        if !nodes.contains_key(*name) {
            // Bound ones are removed with their node; the others would wait for it for ever.
            let unbound = workers.iter().filter(|worker| worker.node.is_none() && !worker.terminating);
            unbound.for_each(|worker| replicas.decide(worker, Fate::Clear(DeleteReason::NodeGone, None)));
        }
    }
    let Some(spec) = spec else {
        replicas.desired = places.len();
        return replicas;
    };
    for (name, node) in nodes {
        let fit = fit(spec, node);
        let there = places.get(name.as_str());
        // Whoever stays on a node that takes nobody new still counts; whoever is on its way out is not replaced there.
        let is_kept =
            fit.stay && there.is_some_and(|workers| workers.iter().any(|worker| !worker.terminating));
        replicas.desired += usize::from(fit.run || is_kept);
        match there {
            None if fit.run && replicas.missing.len() < BURST => {
                replicas.missing.push(Place::Node(name.clone()));
            }
            None => {}
            Some(workers) if fit.stay => one_of(&mut replicas, workers, node, retry_times),
            Some(workers) => {
                let there = workers.iter().filter(|worker| !worker.terminating);
                there.for_each(|worker| replicas.dismiss(worker));
            }
        }
    }
    replicas
}

/// Keeps one of the workers of a Kubernetes node.
fn one_of(replicas: &mut Replicas, workers: &[&Worker], node: &NodeFacts, retry_times: &RetryTimes) {
    let mut running = vec![];
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        if worker.is_finished() {
            replicas.decide(worker, Fate::Clear(why_ended(worker), retry_times.get(&worker.name()).copied()));
        } else if worker.pod.labels().get(POD_HOSTNAME) != Some(&expected_hostname(node)) {
            replicas.decide(worker, Fate::Leave(Cause::Update, DeleteReason::Renamed));
        } else {
            running.push(*worker);
        }
    }
    // The one with a job stays, else the one that would be removed last. They share a Slurm node: only they themselves
    // can tell whose job that is.
    running
        .sort_by(|one, other| other.was_busy().cmp(&one.was_busy()).then_with(|| removal_order(other, one)));
    for worker in running.into_iter().skip(1) {
        replicas.decide(worker, Fate::Leave(Cause::ScaleIn, DeleteReason::Unwanted));
    }
}

/// The Kubernetes node that a pod is bound to, or made for.
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
