//! Which lists decisions about a NodeSet need from Slurm besides its nodes. Job records and reservations are requested only
//! while a decision depends on them.

use crate::slurm::Queries;
use kube::ResourceExt;
use slinky_api::conditions::{RESERVATION_CREATED, find};
use slinky_api::labels::RESERVATION_FINALIZER;
use slinky_api::v1beta1::{Controller, NodeSet, UpdateStrategyType};
use slurm_conf::partition_names;

/// The lists that decisions about this NodeSet need.
pub fn slurm_queries(nodeset: &NodeSet, controller: Option<&Controller>) -> Queries {
    Queries { jobs: needs_job_records(nodeset, controller), reservations: needs_reservations(nodeset) }
}

/// Whether a decision depends on the job records that name the partition of this NodeSet: the NodeSet is being deleted, or
/// its partition is to be removed.
pub fn needs_job_records(nodeset: &NodeSet, controller: Option<&Controller>) -> bool {
    nodeset.metadata.deletion_timestamp.is_some()
        || !nodeset.releases_partition()
            && controller.is_some_and(|controller| is_partition_unwanted(nodeset, controller))
}

/// Whether the NodeSet is not being deleted and has no partition in its spec, so that a partition of its name is to be
/// removed from slurm.conf.
pub fn is_partition_unwanted(nodeset: &NodeSet, controller: &Controller) -> bool {
    nodeset.metadata.deletion_timestamp.is_none()
        && nodeset.spec.enabled_partition().is_none()
        && !is_partition_defined_elsewhere(nodeset, controller)
}

/// Whether the operator does not define the partition of this name: the cluster is external, or the Controller's extraConf
/// defines the partition.
pub fn is_partition_defined_elsewhere(nodeset: &NodeSet, controller: &Controller) -> bool {
    let extra_conf = controller.spec.extra_conf.as_deref().unwrap_or_default();
    controller.spec.external || partition_names(extra_conf).contains(&nodeset.slurm_name())
}

/// Whether a decision depends on the reservations in Slurm.
pub fn needs_reservations(nodeset: &NodeSet) -> bool {
    is_update_scheduled(nodeset) || owns_reservation(nodeset)
}

/// Whether the update strategy of the NodeSet is `ScheduledUpdate`.
pub fn is_update_scheduled(nodeset: &NodeSet) -> bool {
    nodeset.spec.effective_update_strategy().type_ == UpdateStrategyType::ScheduledUpdate
}

/// Whether a reservation with the name for this NodeSet was created for it.
pub fn owns_reservation(nodeset: &NodeSet) -> bool {
    let has_finalizer = nodeset.finalizers().iter().any(|name| name == RESERVATION_FINALIZER);
    let conditions = nodeset.status.as_ref().map(|status| status.conditions.as_slice());
    has_finalizer || conditions.is_some_and(|conditions| find(conditions, RESERVATION_CREATED).is_some())
}
