//! How a NodeSet goes: its workers first, then the job records that name its partition, then the NodeSet itself.
//!
//! slurmctld crashes when it is told to forget a partition that a job record still names.

use super::effect::Effect;
use super::update::reservation_name;
use crate::observe::Observed;
use crate::slurm::View;
use crate::worker::Worker;
use kube::ResourceExt;
use slinky_api::labels::{RESERVATION_FINALIZER, TRUE, WORKERS_FINALIZER, annotations};

/// What a NodeSet that is being deleted waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// So many workers.
    Workers(usize),
    /// So many job records that name its partition.
    Jobs(usize),
    /// Word from Slurm.
    Slurm,
    /// Nothing.
    Nothing,
}

/// What a NodeSet that is being deleted waits for.
pub fn leaving(observed: &Observed, workers: &[Worker]) -> Leaving {
    let nodeset = &observed.nodeset;
    let forced = nodeset.annotations().get(annotations::FORCE_DELETE).is_some_and(|value| value == TRUE);
    let cluster =
        observed.controller.as_ref().filter(|controller| controller.metadata.deletion_timestamp.is_none());
    if forced || cluster.is_none() {
        return Leaving::Nothing;
    }
    if !workers.is_empty() {
        return Leaving::Workers(workers.len());
    }
    match &observed.slurm {
        View::NotExpected => Leaving::Nothing,
        View::Unknown { .. } => Leaving::Slurm,
        View::Known(known) => match &known.snapshot.jobs {
            None => Leaving::Slurm,
            Some(jobs) => match jobs.by_partition.get(&nodeset.slurm_name()).copied().unwrap_or_default() {
                0 => Leaving::Nothing,
                records => Leaving::Jobs(records),
            },
        },
    }
}

/// What ends a NodeSet that waits for nothing any more.
pub fn release(observed: &Observed) -> Vec<Effect> {
    let nodeset = &observed.nodeset;
    let ours = [RESERVATION_FINALIZER, WORKERS_FINALIZER];
    let left: Vec<_> =
        nodeset.finalizers().iter().filter(|name| !ours.contains(&name.as_str())).cloned().collect();
    if left.len() == nodeset.finalizers().len() {
        return vec![];
    }
    let reserved = nodeset.finalizers().iter().any(|name| name == RESERVATION_FINALIZER);
    let known = matches!(observed.slurm, View::Known(_));
    let unreserve = (reserved && known).then(|| Effect::Unreserve(reservation_name(nodeset)));
    unreserve.into_iter().chain([Effect::Release { finalizers: left }]).collect()
}

/// The finalizers that keep a NodeSet from vanishing before its workers, and before what it `reserves`; `None` if it has
/// them, or is on its way out.
pub fn hold(observed: &Observed, reserves: bool) -> Option<Vec<String>> {
    let held = observed.nodeset.finalizers();
    let deleting = observed.nodeset.metadata.deletion_timestamp.is_some();
    let wanted = [WORKERS_FINALIZER].into_iter().chain(reserves.then_some(RESERVATION_FINALIZER));
    let missing: Vec<_> = wanted.map(str::to_owned).filter(|name| !held.contains(name)).collect();
    (!deleting && !missing.is_empty()).then(|| [held, &missing].concat())
}
