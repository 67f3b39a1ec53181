//! Finalizers of a NodeSet: its workers are deleted first, then job records that name its partition must expire, then
//! the NodeSet is deleted. Also whether the partition of a remaining NodeSet may be removed.
//!
//! slurmctld kills jobs whose partition is removed from slurm.conf, and some releases crash on a leftover job record.
//! The Controller's reconciler keeps an unwanted partition in slurm.conf, closed to new jobs, until it is reported
//! removable.

use super::effect::Effect;
use super::membership::is_orphaning;
use super::reservation::reservation_name;
use crate::observe::{Observed, is_partition_defined_elsewhere, is_partition_unwanted};
use crate::slurm::View;
use crate::worker::Worker;
use kube::ResourceExt;
use slinky_api::labels::{RESERVATION_FINALIZER, TRUE, WORKERS_FINALIZER, annotations};
use slinky_api::v1beta1::NodeSet;

/// What blocks the deletion of a NodeSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionWait {
    /// This many workers.
    Workers(usize),
    /// This many job records that name its partition.
    Jobs(usize),
    /// Its partition, which accepts new jobs, or may accept them.
    Open,
    /// Slurm to answer.
    Slurm,
    /// Nothing: it can be deleted.
    Nothing,
}

/// Whether the partition of a remaining NodeSet may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionState {
    /// It is wanted, or defined elsewhere.
    NotDue,
    /// Slurm does not report jobs or partitions.
    Unknown,
    /// Not yet: it still accepts new jobs.
    Open,
    /// Not yet: this many job records name it.
    Named(usize),
    /// It may be removed: no job record names it.
    Unnamed,
    /// It may be removed: an annotation forces it.
    Forced,
}

/// Decides whether the partition of a remaining NodeSet may be removed.
pub fn partition_state(observed: &Observed) -> PartitionState {
    let nodeset = &observed.nodeset;
    let Some(controller) = &observed.controller else { return PartitionState::Unknown };
    let name = nodeset.slurm_name();
    if !is_partition_unwanted(nodeset, controller) {
        return PartitionState::NotDue;
    }
    if is_set(nodeset, annotations::FORCE_PARTITION_REMOVAL) {
        return PartitionState::Forced;
    }
    let jobs = match &observed.slurm {
        // Without RestApi jobs cannot be listed, and may still exist.
        View::NoRestApi | View::Unknown { .. } => return PartitionState::Unknown,
        View::Known(known) => known.snapshot.jobs.as_ref(),
    };
    let open = jobs.and_then(|jobs| jobs.open_partitions.as_ref());
    let (Some(jobs), Some(open)) = (jobs, open) else { return PartitionState::Unknown };
    match jobs.by_partition.get(&name).copied().unwrap_or_default() {
        _ if open.contains(&name) => PartitionState::Open,
        0 => PartitionState::Unnamed,
        records => PartitionState::Named(records),
    }
}

/// Whether another, remaining NodeSet has the same name in Slurm: then it takes over the partition.
fn is_shared(observed: &Observed) -> bool {
    let (uid, name) = (&observed.nodeset.metadata.uid, observed.nodeset.slurm_name());
    let mut remaining = observed.siblings.iter().filter(|set| set.metadata.deletion_timestamp.is_none());
    remaining.any(|set| set.metadata.uid != *uid && set.slurm_name() == name)
}

fn is_set(nodeset: &NodeSet, annotation: &str) -> bool {
    nodeset.annotations().get(annotation).is_some_and(|value| value == TRUE)
}

/// Whether an annotation forces the deletion of a NodeSet and its workers, whatever jobs they have.
pub fn is_force_deleted(nodeset: &NodeSet) -> bool {
    is_set(nodeset, annotations::FORCE_DELETE)
}

/// Decides what blocks the deletion of a NodeSet.
pub fn deletion_wait(observed: &Observed, workers: &[Worker]) -> DeletionWait {
    let nodeset = &observed.nodeset;
    let cluster =
        observed.controller.as_ref().filter(|controller| controller.metadata.deletion_timestamp.is_none());
    // The workers are garbage-collected with the Controller, or stay.
    if cluster.is_none() || is_orphaning(observed) {
        return DeletionWait::Nothing;
    }
    let is_forced = is_force_deleted(nodeset);
    match workers.iter().filter(|worker| !(is_forced && worker.terminating)).count() {
        0 if is_forced => return DeletionWait::Nothing,
        0 => {}
        count => return DeletionWait::Workers(count),
    }
    let is_partition_removed = || {
        cluster.is_some_and(|controller| !is_partition_defined_elsewhere(nodeset, controller))
            && !is_shared(observed)
    };
    let jobs = match &observed.slurm {
        View::NoRestApi => return DeletionWait::Nothing,
        View::Unknown { .. } => None,
        // Jobs of a partition that stays come and go, and are none of its business.
        View::Known(_) if !is_partition_removed() => return DeletionWait::Nothing,
        View::Known(known) => known.snapshot.jobs.as_ref(),
    };
    let Some(jobs) = jobs else { return DeletionWait::Slurm };
    let name = nodeset.slurm_name();
    let may_be_open = || jobs.open_partitions.as_ref().is_none_or(|open| open.contains(&name));
    match jobs.by_partition.get(&name).copied().unwrap_or_default() {
        0 if may_be_open() => DeletionWait::Open,
        0 => DeletionWait::Nothing,
        records => DeletionWait::Jobs(records),
    }
}

/// The last effects of a NodeSet whose deletion is no longer blocked.
pub fn remove_finalizers(observed: &Observed) -> Vec<Effect> {
    let nodeset = &observed.nodeset;
    let ours = [RESERVATION_FINALIZER, WORKERS_FINALIZER];
    let finalizers: Vec<_> =
        nodeset.finalizers().iter().filter(|name| !ours.contains(&name.as_str())).cloned().collect();
    if finalizers.len() == nodeset.finalizers().len() {
        return vec![];
    }
    let reserved = nodeset.finalizers().iter().any(|name| name == RESERVATION_FINALIZER);
    let known = matches!(observed.slurm, View::Known(_));
    let delete_reservation =
        (reserved && known).then(|| Effect::DeleteReservation(reservation_name(nodeset)));
    delete_reservation.into_iter().chain([Effect::SetFinalizers { finalizers }]).collect()
}

/// All finalizers of the NodeSet with those it lacks: for its workers, and for a reservation if it `needs_reservation`.
/// `None` if none is missing.
pub fn missing_finalizers(nodeset: &NodeSet, needs_reservation: bool) -> Option<Vec<String>> {
    let present = nodeset.finalizers();
    let desired = [WORKERS_FINALIZER].into_iter().chain(needs_reservation.then_some(RESERVATION_FINALIZER));
    let missing: Vec<_> = desired.map(str::to_owned).filter(|name| !present.contains(name)).collect();
    (!missing.is_empty()).then(|| [present, &missing].concat())
}
