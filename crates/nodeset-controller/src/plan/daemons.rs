//! Who stays, who leaves and who is missing with one worker on each Kubernetes node that fits.

use super::effect::Why;
use super::fit::{NodeFacts, expected_hostname, fit};
use super::order::removal_order;
use super::roster::{BURST, Backoff, Fate, Place, Roster, leave_old_mode, why_ended};
use crate::worker::{Cause, Worker};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::v1beta1::ScalingMode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The Kubernetes nodes, by name.
pub type Nodes = BTreeMap<String, Arc<NodeFacts>>;

/// Decides about the workers of all Kubernetes nodes. `spec` is what a pod asks of its node; without it nobody comes or
/// goes.
pub fn daemons(workers: &[Worker], nodes: &Nodes, spec: Option<&PodSpec>, backoff: &Backoff) -> Roster {
    let mut roster = Roster::default();
    leave_old_mode(&mut roster, workers, ScalingMode::DaemonSet);
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
            unbound.for_each(|worker| roster.decide(worker, Fate::Clear(Why::NodeGone, None)));
        }
    }
    let Some(spec) = spec else {
        roster.desired = places.len();
        return roster;
    };
    for (name, node) in nodes {
        let fit = fit(spec, node);
        let there = places.get(name.as_str());
        // Whoever stays on a node that takes nobody new still counts; whoever is on its way out is not replaced there.
        let is_kept =
            fit.stay && there.is_some_and(|workers| workers.iter().any(|worker| !worker.terminating));
        roster.desired += usize::from(fit.run || is_kept);
        match there {
            None if fit.run && roster.missing.len() < BURST => {
                roster.missing.push(Place::Node(name.clone()));
            }
            None => {}
            Some(workers) if fit.stay => one_of(&mut roster, workers, node, backoff),
            Some(workers) => {
                let there = workers.iter().filter(|worker| !worker.terminating);
                there.for_each(|worker| roster.dismiss(worker));
            }
        }
    }
    roster
}

/// Keeps one of the workers of a Kubernetes node.
fn one_of(roster: &mut Roster, workers: &[&Worker], node: &NodeFacts, backoff: &Backoff) {
    let mut running = vec![];
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        if worker.is_finished() {
            roster.decide(worker, Fate::Clear(why_ended(worker), backoff.get(&worker.name()).copied()));
        } else if worker.pod.labels().get(POD_HOSTNAME) != Some(&expected_hostname(node)) {
            roster.decide(worker, Fate::Leave(Cause::Update, Why::Renamed));
        } else {
            running.push(*worker);
        }
    }
    // The one with a job stays, else the one that would be removed last. They share a Slurm node: only they themselves
    // can tell whose job that is.
    running
        .sort_by(|one, other| other.was_busy().cmp(&one.was_busy()).then_with(|| removal_order(other, one)));
    for worker in running.into_iter().skip(1) {
        roster.decide(worker, Fate::Leave(Cause::ScaleIn, Why::Unwanted));
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
