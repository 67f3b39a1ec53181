//! The desired child objects that follow from the spec: the Service and PodDisruptionBudget that the workers of a cluster
//! share, the sshd configuration, and the current revision.

use super::obstacle::Obstacle;
use super::revision::{RevisionStep, Revisions};
use crate::build::{
    build_revision, build_revision_data, build_ssh_config, build_worker_pdb, build_worker_service,
};
use crate::observe::Observed;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use operator_runtime::RawObject;
use std::sync::Arc;

/// The desired child objects; `None` for those that the spec does not ask for.
pub struct Children {
    /// The Service that the workers of the cluster share.
    pub service: Option<Result<RawObject<Service>, Obstacle>>,
    /// The PodDisruptionBudget that the workers of the cluster share.
    pub pdb: Option<PodDisruptionBudget>,
    /// The ConfigMap with the sshd configuration.
    pub ssh_config: Option<ConfigMap>,
    /// The revision to create.
    pub revision: Option<ControllerRevision>,
}

/// The desired children; `None` if existing ones stay as they are: without a Controller, and while the NodeSet is being
/// deleted.
pub fn children(observed: &Observed, revisions: &Revisions) -> Option<Children> {
    let nodeset = observed.nodeset.as_ref();
    let controller = observed.controller.as_deref()?;
    if nodeset.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let siblings = || observed.siblings.iter().map(Arc::as_ref);
    let revision = revisions.steps.iter().find_map(|step| match step {
        RevisionStep::Create { hash, number } => {
            Some(build_revision(nodeset, build_revision_data(nodeset), hash, *number))
        }
        RevisionStep::Adopt(_)
        | RevisionStep::Label { .. }
        | RevisionStep::Renumber { .. }
        | RevisionStep::Delete(_) => None,
    });
    Some(Children {
        service: build_worker_service(nodeset, controller, siblings()).map_err(Obstacle::invalid).transpose(),
        pdb: build_worker_pdb(nodeset, controller, siblings()),
        ssh_config: build_ssh_config(nodeset),
        revision,
    })
}
