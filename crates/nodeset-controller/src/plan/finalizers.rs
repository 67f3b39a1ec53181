//! How a NodeSet goes: its workers first, then the job records that name its partition, then the NodeSet itself. And how
//! the partition goes of a NodeSet that stays.
//!
//! slurmctld ends jobs whose partition it is told to forget, and some releases crash over a mere record. Whoever writes
//! slurm.conf keeps a partition that nobody wants any more, closed to new jobs, until it is said here that it may go.

use super::effect::Effect;
use super::update::reservation_name;
use crate::observe::{Observed, is_partition_defined_elsewhere, is_partition_unwanted};
use crate::slurm::View;
use crate::worker::Worker;
use kube::ResourceExt;
use slinky_api::labels::{RESERVATION_FINALIZER, TRUE, WORKERS_FINALIZER, annotations};
use slinky_api::v1beta1::NodeSet;

/// What a NodeSet that is being deleted waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionWait {
    /// So many workers.
    Workers(usize),
    /// So many job records that name its partition.
    Jobs(usize),
    /// Its partition, which still takes new jobs, or may do so.
    Open,
    /// Word from Slurm.
    Slurm,
    /// Nothing.
    Nothing,
}

/// What becomes of the partition of a NodeSet that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionState {
    /// It is wanted, or none of ours.
    NotDue,
    /// Nobody can tell.
    Unknown,
    /// It stays: it still takes new jobs.
    Open,
    /// It stays: so many job records name it.
    Named(usize),
    /// It may go: nobody names it.
    Unnamed,
    /// It may go: somebody says so.
    Forced,
}

/// What becomes of the partition of a NodeSet that stays.
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
        // Jobs come and go all the same where nobody can be asked about them.
        View::NotExpected | View::Unknown { .. } => return PartitionState::Unknown,
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

/// Whether another NodeSet that stays goes by the same name in Slurm: it takes the partition over.
fn is_shared(observed: &Observed) -> bool {
    let (uid, name) = (&observed.nodeset.metadata.uid, observed.nodeset.slurm_name());
    let mut staying = observed.siblings.iter().filter(|set| set.metadata.deletion_timestamp.is_none());
    staying.any(|set| set.metadata.uid != *uid && set.slurm_name() == name)
}

fn is_set(nodeset: &NodeSet, annotation: &str) -> bool {
    nodeset.annotations().get(annotation).is_some_and(|value| value == TRUE)
}

/// Whether a NodeSet that is being deleted is to go whatever it leaves behind.
pub fn is_force_deleted(nodeset: &NodeSet) -> bool {
    is_set(nodeset, annotations::FORCE_DELETE)
}

/// What a NodeSet that is being deleted waits for.
pub fn deletion_wait(observed: &Observed, workers: &[Worker]) -> DeletionWait {
    let nodeset = &observed.nodeset;
    let cluster =
        observed.controller.as_ref().filter(|controller| controller.metadata.deletion_timestamp.is_none());
    if is_force_deleted(nodeset) || cluster.is_none() {
        return DeletionWait::Nothing;
    }
    if !workers.is_empty() {
        return DeletionWait::Workers(workers.len());
    }
    let jobs = match &observed.slurm {
        View::NotExpected => return DeletionWait::Nothing,
        View::Unknown { .. } => None,
        View::Known(known) => known.snapshot.jobs.as_ref(),
    };
    let Some(jobs) = jobs else { return DeletionWait::Slurm };
    let name = nodeset.slurm_name();
    let ours = || {
        cluster.is_some_and(|controller| !is_partition_defined_elsewhere(nodeset, controller))
            && !is_shared(observed)
    };
    let may_be_open = || jobs.open_partitions.as_ref().is_none_or(|open| open.contains(&name));
    match jobs.by_partition.get(&name).copied().unwrap_or_default() {
        0 if ours() && may_be_open() => DeletionWait::Open,
        0 => DeletionWait::Nothing,
        records => DeletionWait::Jobs(records),
    }
}

/// What ends a NodeSet that waits for nothing any more.
pub fn remove_finalizers(observed: &Observed) -> Vec<Effect> {
    let nodeset = &observed.nodeset;
    let ours = [RESERVATION_FINALIZER, WORKERS_FINALIZER];
    let left: Vec<_> =
        nodeset.finalizers().iter().filter(|name| !ours.contains(&name.as_str())).cloned().collect();
    if left.len() == nodeset.finalizers().len() {
        return vec![];
    }
    let reserved = nodeset.finalizers().iter().any(|name| name == RESERVATION_FINALIZER);
    let known = matches!(observed.slurm, View::Known(_));
    let unreserve = (reserved && known).then(|| Effect::DeleteReservation(reservation_name(nodeset)));
    unreserve.into_iter().chain([Effect::SetFinalizers { finalizers: left }]).collect()
}

/// The finalizers that keep a NodeSet from vanishing before its workers, and before what it `reserves`; `None` if it has
/// them, or is on its way out.
pub fn missing_finalizers(observed: &Observed, reserves: bool) -> Option<Vec<String>> {
    let held = observed.nodeset.finalizers();
    let deleting = observed.nodeset.metadata.deletion_timestamp.is_some();
    let wanted = [WORKERS_FINALIZER].into_iter().chain(reserves.then_some(RESERVATION_FINALIZER));
    let missing: Vec<_> = wanted.map(str::to_owned).filter(|name| !held.contains(name)).collect();
    (!deleting && !missing.is_empty()).then(|| [held, &missing].concat())
}
