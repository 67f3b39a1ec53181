//! Plans the StatefulSet of slurmctld.

use super::{ControllerObstacle, Obstacle, Step};
use crate::build::{Configuration, Hashes, SLURM_CONF, build_stateful_set, without_keys};
use crate::observe::Observed;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{hash_files, hash_secret, hash_values};
use slinky_api::names::controller as names;
use slinky_api::ownership::is_controlled_by;
use slurm_conf::cluster_name_in_file;
use std::sync::Arc;

/// The StatefulSet that runs with this configuration.
pub fn desired_stateful_set(
    observed: &Observed,
    configuration: &Configuration,
) -> Result<RawObject<StatefulSet>, Obstacle> {
    check_shared_state(observed)?;
    let slurm_key = observed.slurm_key.as_ref().map_err(Arc::clone)?;
    let jwt_key = observed.jwt_key.as_ref().map_err(Arc::clone)?;
    let user_files = without_keys(configuration.user.clone());
    let hashes = Hashes {
        cluster: configuration.generated.get(SLURM_CONF).and_then(|text| cluster_name_in_file(text)),
        slurm_key: hash_secret(slurm_key),
        jwt_key: hash_secret(jwt_key),
        generated_files: hash_values(&configuration.generated),
        user_files: (!user_files.is_empty()).then(|| hash_files(&user_files)),
        are_user_files_unchanged: !has_edited_files(observed),
    };
    let live = observed.stateful_set.as_deref();
    build_stateful_set(&observed.controller, hashes, live).map_err(Obstacle::invalid)
}

/// True if the user's files are not those in force.
fn has_edited_files(observed: &Observed) -> bool {
    observed.in_force().is_some_and(|in_force| in_force.user != observed.user_files())
}

/// The StatefulSet that keeps an edit of the user's files away from pods that mount these files: they get the copies that
/// are in force.
pub fn detached_stateful_set(observed: &Observed) -> Option<RawObject<StatefulSet>> {
    let in_force =
        observed.in_force().filter(|_| observed.mounts_user_files() && has_edited_files(observed))?;
    desired_stateful_set(observed, &in_force).ok()
}

/// Standby daemons need a state directory that all of them mount.
fn check_shared_state(observed: &Observed) -> Result<(), Obstacle> {
    let spec = &observed.controller.spec;
    if !spec.is_highly_available() {
        return Ok(());
    }
    let persistence = spec.persistence.clone().unwrap_or_default();
    let claim = persistence.existing_claim().filter(|_| persistence.enabled);
    let claim = claim.ok_or(ControllerObstacle::NothingShared)?;
    if claim_template(observed).is_some() {
        return Err(ControllerObstacle::OwnVolume.into());
    }
    let shared = observed.shared_claim.as_ref().map_err(Arc::clone)?;
    let modes = shared.as_ref().and_then(|claim| claim.spec.as_ref()?.access_modes.clone());
    if modes.is_some_and(|modes| !modes.iter().any(|mode| mode == "ReadWriteMany")) {
        return Err(ControllerObstacle::NotShared(claim.to_owned()).into());
    }
    Ok(())
}

/// Applies the StatefulSet. One with another Service name was created by an earlier operator, and one whose claim has no size
/// gets no pod; these fields are immutable, so the StatefulSet is deleted without its pods, and the next reconcile creates
/// one that adopts them.
pub fn stateful_set_step(observed: &Observed, desired: RawObject<StatefulSet>) -> Option<Step> {
    let controller = observed.controller.as_ref();
    let Some(live) = &observed.stateful_set else { return Some(Step::ApplyStatefulSet(Box::new(desired))) };
    let service = live.spec.as_ref().and_then(|spec| spec.service_name.clone());
    let is_of_old_form = service != Some(names::internal_service(&controller.name_any()));
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    let gets_size = is_without_size(observed) && persistence.claim_spec().is_ok_and(|claim| has_size(&claim));
    let is_recreated = is_controlled_by(&live.metadata, controller) && (is_of_old_form || gets_size);
    if !is_recreated {
        return Some(Step::ApplyStatefulSet(Box::new(desired)));
    }
    live.metadata.deletion_timestamp.is_none().then(|| Step::OrphanPods(live.clone()))
}

/// The claim template that the StatefulSet was created with.
fn claim_template(observed: &Observed) -> Option<&PersistentVolumeClaim> {
    observed.stateful_set.as_ref()?.spec.as_ref()?.volume_claim_templates.as_ref()?.first()
}

/// What keeps `persistence` from taking effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistenceProblem {
    /// The reason of `Degraded`.
    pub reason: &'static str,
    /// The message.
    pub message: &'static str,
}

fn has_size(claim: &PersistentVolumeClaimSpec) -> bool {
    let requests = claim.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.is_some_and(|requests| requests.contains_key("storage"))
}

/// True if no pod starts, because Kubernetes cannot create its claim.
fn is_without_size(observed: &Observed) -> bool {
    let claim = claim_template(observed).map(|claim| claim.spec.clone().unwrap_or_default());
    observed.pods.is_empty() && claim.is_some_and(|claim| !has_size(&claim))
}

/// A claim that cannot be created, or a change of `persistence` that has no effect: claim templates are immutable.
pub fn persistence_problem(observed: &Observed) -> Option<PersistenceProblem> {
    if is_without_size(observed) {
        return Some(PersistenceProblem {
            reason: "ClaimWithoutSize",
            message: "slurmctld does not start, because its PersistentVolumeClaim has no size: set \
                      persistence.resources.requests.storage, or persistence.enabled to false",
        });
    }
    ignored_change(observed).map(|message| PersistenceProblem { reason: "PersistenceUnchanged", message })
}

fn ignored_change(observed: &Observed) -> Option<&'static str> {
    const KEPT: &str = "slurmctld keeps the volume that it was created with: persistence cannot change later";
    let persistence = observed.controller.spec.persistence.clone().unwrap_or_default();
    observed.stateful_set.as_ref()?;
    let claim = claim_template(observed).map(|claim| claim.spec.clone().unwrap_or_default());
    let wants_claim = persistence.enabled && persistence.existing_claim().is_none();
    match claim {
        Some(_) if !wants_claim => Some(KEPT),
        None if wants_claim => Some("slurmctld gets no volume of its own: persistence cannot change later"),
        Some(claim) => {
            let desired = persistence.claim_spec().ok()?;
            let differs = desired.storage_class_name.is_some()
                && desired.storage_class_name != claim.storage_class_name
                || desired.access_modes.is_some() && desired.access_modes != claim.access_modes;
            differs.then_some(KEPT)
        }
        None => None,
    }
}
