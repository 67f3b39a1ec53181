//! Owner references of PersistentVolumeClaims, which decide with which object a claim is garbage-collected.

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

/// The desired owners of a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimOwners {
    /// All owner references to write; `None` if they are up to date.
    pub change: Option<Vec<OwnerReference>>,
    /// Whether another owner controls the claim, so that the retention policy cannot be applied.
    pub is_contested: bool,
}

/// The decisions about the claims of all workers.
#[derive(Debug, Default, PartialEq)]
pub struct ClaimPlan {
    /// Effects that set owners.
    pub effects: Vec<Effect>,
    /// Claims that another owner controls, so that the retention policy cannot be applied.
    pub contested: Vec<String>,
}

/// Decides the owners of the claims of all workers. `leaving` selects workers that a scale-in removes, the only removal
/// that may delete data.
pub fn decide(observed: &Observed, workers: &[Worker], leaving: impl Fn(&Worker) -> bool) -> ClaimPlan {
    let nodeset = observed.nodeset.as_ref();
    // whenScaled applies to scale-in only; the deletion of the NodeSet follows whenDeleted.
    let is_scale_in = nodeset.metadata.deletion_timestamp.is_none();
    let mut plan = ClaimPlan::default();
    for (name, user) in users(nodeset, workers, &leaving) {
        let Some(claim) = observed.claims.get(&name) else { continue };
        let owners = claim_owners(claim, nodeset, user, is_scale_in && leaving(user));
        if owners.is_contested {
            plan.contested.push(name.clone());
        }
        plan.effects.extend(owners.change.map(|owners| Effect::SetClaimOwners {
            claim: name,
            uid: claim.uid().unwrap_or_default(),
            version: claim.resource_version().unwrap_or_default(),
            owners,
            user: user.uid().to_owned(),
        }));
    }
    plan
}

/// The effects on workers, with the changes of claims each before the delete of its worker: a batch is cut at its end, and a
/// pod that is deleted takes the claims with it that it owns by then. Other claims come last.
pub fn before_deletes(workers: Vec<Effect>, claims: Vec<Effect>) -> Vec<Effect> {
    let mut by_user: BTreeMap<String, Vec<Effect>> = BTreeMap::new();
    for claim in claims {
        if let Effect::SetClaimOwners { user, .. } = &claim {
            by_user.entry(user.clone()).or_default().push(claim);
        }
    }
    let mut effects = vec![];
    for effect in workers {
        if let Effect::DeletePod(deletion) = &effect {
            effects.extend(by_user.remove(&deletion.pod.uid).unwrap_or_default());
        }
        effects.push(effect);
    }
    effects.extend(by_user.into_values().flatten());
    effects
}

/// The worker that uses each claim, by claim name.
fn users<'w>(
    nodeset: &NodeSet,
    workers: &'w [Worker],
    leaving: impl Fn(&Worker) -> bool,
) -> BTreeMap<String, &'w Worker> {
    // With unreadable claim templates, claims stay as they are.
    let templates: Vec<_> =
        claim_templates(nodeset).unwrap_or_default().iter().map(ResourceExt::name_any).collect();
    let mut users: BTreeMap<String, &Worker> = BTreeMap::new();
    // Terminating workers too: another client may have deleted the pod, or the decision to remove it may be withdrawn.
    for worker in workers {
        for claim in claims_of(nodeset, &templates, worker) {
            // Two pods of one Kubernetes node share their claims, which stay with the pod that stays.
            let user = users.entry(claim).or_insert(worker);
            if (leaving(worker), worker.terminating) < (leaving(user), user.terminating) {
                *user = worker;
            }
        }
    }
    users
}

/// The names of a worker's claims, with the ordinal as in its name: the padding may have changed since.
fn claims_of(nodeset: &NodeSet, templates: &[String], worker: &Worker) -> Vec<String> {
    let name = worker.name();
    let suffix = match worker.mode {
        Some(ScalingMode::DaemonSet) => worker.pod.labels().get(POD_HOSTNAME).map(String::as_str),
        Some(ScalingMode::StatefulSet) | None => name.rsplit_once('-').map(|(_, number)| number),
    };
    let names =
        suffix.into_iter().flat_map(|suffix| templates.iter().map(move |template| (template, suffix)));
    names.map(|(template, suffix)| nodeset.claim_name(template, suffix)).collect()
}

/// Decides the owners of a claim.
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
    // An owner of the same name with another UID was deleted: the garbage collector deletes the claim, and it is
    // recreated.
    if present
        .iter()
        .any(|owner| !is_ours(owner) && ours.iter().any(|reference| has_name_of(owner, reference)))
    {
        return ClaimOwners::default();
    }
    let policy = nodeset.spec.claim_retention();
    let with_nodeset = policy.when_deleted == ClaimRetention::Delete;
    let with_pod = policy.when_scaled == ClaimRetention::Delete;
    let is_contested = (with_nodeset || with_pod)
        && present.iter().any(|owner| owner.controller == Some(true) && !is_ours(owner));
    let desired = match (is_contested, with_pod && leaving) {
        (true, _) => None,
        (false, true) => Some(pod_reference.clone()),
        (false, false) => with_nodeset.then(|| nodeset_reference.clone()),
    };
    let held: Vec<_> = present.iter().filter(|owner| is_ours(owner)).collect();
    let is_up_to_date = held.iter().all(|owner| owner.controller == Some(true))
        && held.iter().map(|owner| &owner.uid).eq(desired.iter().map(|owner| &owner.uid));
    let others = present.iter().filter(|owner| !is_ours(owner)).cloned();
    let change = (!is_up_to_date).then(|| others.chain(desired).collect());
    ClaimOwners { change, is_contested }
}

fn has_name_of(owner: &OwnerReference, reference: &OwnerReference) -> bool {
    let name = |owner: &OwnerReference| (owner.api_version.clone(), owner.kind.clone(), owner.name.clone());
    name(owner) == name(reference)
}

#[cfg(test)]
mod tests;
