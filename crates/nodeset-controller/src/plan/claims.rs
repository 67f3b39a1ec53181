//! Whom claims belong to, hence with whom they vanish.

use super::Effect;
use crate::build::claim_templates;
use crate::observe::Observed;
use crate::worker::Worker;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::{ClaimRetention, NodeSet, ScalingMode};
use std::collections::BTreeMap;

/// Whom a claim should belong to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimOwners {
    /// All owners that it should have; `None` if it has them.
    pub change: Option<Vec<OwnerReference>>,
    /// Whether somebody else controls it, so that the retention policy does not count.
    pub is_contested: bool,
}

/// Gives claims their owners. `leaving` tells who is removed by scale-in: the only way to go that may take data along.
pub fn owns(observed: &Observed, workers: &[Worker], leaving: impl Fn(&Worker) -> bool) -> Vec<Effect> {
    let decided = decide(observed, workers, leaving).into_iter();
    let changes = decided.filter_map(|(claim, owners)| {
        Some(Effect::SetClaimOwners {
            claim: claim.name_any(),
            uid: claim.uid().unwrap_or_default(),
            version: claim.resource_version().unwrap_or_default(),
            owners: owners.change?,
        })
    });
    changes.collect()
}

/// Claims for which the retention policy does not count, because somebody else controls them.
pub fn contested(observed: &Observed, workers: &[Worker]) -> Vec<String> {
    let decided = decide(observed, workers, |_| false).into_iter();
    decided.filter(|(_, owners)| owners.is_contested).map(|(claim, _)| claim.name_any()).collect()
}

fn decide<'a>(
    observed: &'a Observed,
    workers: &[Worker],
    leaving: impl Fn(&Worker) -> bool,
) -> Vec<(&'a PersistentVolumeClaim, ClaimOwners)> {
    let nodeset = observed.nodeset.as_ref();
    // Whoever deletes a NodeSet has another wish for its claims than whoever makes it smaller.
    let shrinks = nodeset.metadata.deletion_timestamp.is_none();
    // Claims that cannot be read stay as they are.
    let templates: Vec<_> =
        claim_templates(nodeset).unwrap_or_default().iter().map(ResourceExt::name_any).collect();
    let mut users: BTreeMap<String, &Worker> = BTreeMap::new();
    // For whoever is on its way out it is decided already.
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        for claim in claims_of(nodeset, &templates, worker) {
            // Two pods of one Kubernetes node share their claims: those stay with the one that stays.
            let user = users.entry(claim).or_insert(worker);
            if leaving(user) && !leaving(worker) {
                *user = worker;
            }
        }
    }
    let present =
        users.into_iter().filter_map(|(name, user)| Some((observed.claims.get(&name)?.as_ref(), user)));
    present
        .map(|(claim, user)| (claim, claim_owners(claim, nodeset, user, shrinks && leaving(user))))
        .collect()
}

/// The names of a worker's claims: with the number as its name has it, whatever the padding is today.
fn claims_of(nodeset: &NodeSet, templates: &[String], worker: &Worker) -> Vec<String> {
    let name = worker.name();
    let part = match worker.mode {
        Some(ScalingMode::DaemonSet) => worker.pod.labels().get(POD_HOSTNAME).map(String::as_str),
        Some(ScalingMode::StatefulSet) | None => name.rsplit_once('-').map(|(_, number)| number),
    };
    let names = part.into_iter().flat_map(|part| templates.iter().map(move |template| (template, part)));
    names.map(|(template, part)| nodeset.claim_name(template, part)).collect()
}

/// Decides whom a claim should belong to.
pub fn claim_owners(
    claim: &PersistentVolumeClaim,
    nodeset: &NodeSet,
    worker: &Worker,
    leaving: bool,
) -> ClaimOwners {
    let present = claim.owner_references();
    let (Some(nodeset_reference), Some(pod_reference)) =
        (controller_reference(nodeset), controller_reference(worker.pod.as_ref()))
    else {
        return ClaimOwners::default();
    };
    let ours = [&nodeset_reference, &pod_reference];
    let is_ours = |owner: &OwnerReference| ours.iter().any(|reference| reference.uid == owner.uid);
    // An owner of that name that is gone: the claim goes too, and is made anew.
    if present
        .iter()
        .any(|owner| !is_ours(owner) && ours.iter().any(|reference| has_name_of(owner, reference)))
    {
        return ClaimOwners::default();
    }
    let policy = nodeset.spec.claim_retention();
    let goes_with_nodeset = policy.when_deleted == ClaimRetention::Delete;
    let goes_with_pod = policy.when_scaled == ClaimRetention::Delete;
    let is_contested = (goes_with_nodeset || goes_with_pod)
        && present.iter().any(|owner| owner.controller == Some(true) && !is_ours(owner));
    let wanted = match (is_contested, goes_with_pod && leaving) {
        (true, _) => None,
        (false, true) => Some(pod_reference.clone()),
        (false, false) => goes_with_nodeset.then(|| nodeset_reference.clone()),
    };
    let held: Vec<_> = present.iter().filter(|owner| is_ours(owner)).collect();
    let is_up_to_date = held.iter().all(|owner| owner.controller == Some(true))
        && held.iter().map(|owner| &owner.uid).eq(wanted.iter().map(|owner| &owner.uid));
    let others = present.iter().filter(|owner| !is_ours(owner)).cloned();
    let change = (!is_up_to_date).then(|| others.chain(wanted).collect());
    ClaimOwners { change, is_contested }
}

fn has_name_of(owner: &OwnerReference, reference: &OwnerReference) -> bool {
    let name = |owner: &OwnerReference| (owner.api_version.clone(), owner.kind.clone(), owner.name.clone());
    name(owner) == name(reference)
}

#[cfg(test)]
mod tests;
