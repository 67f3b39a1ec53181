//! How a NodeSet goes: its workers first, then the job records that name its partition, then the NodeSet itself. And how
//! the partition goes of a NodeSet that stays.
//!
//! slurmctld ends jobs whose partition it is told to forget, and some releases crash over a mere record. Whoever writes
//! slurm.conf keeps a partition that nobody wants any more, closed to new jobs, until it is said here that it may go.

use super::effect::Effect;
use super::update::reservation_name;
use crate::observe::Observed;
use crate::slurm::View;
use crate::worker::Worker;
use kube::ResourceExt;
use slinky_api::labels::{RESERVATION_FINALIZER, TRUE, WORKERS_FINALIZER, annotations};
use slinky_api::v1beta1::{Controller, NodeSet};
use slurm_conf::partition_names;

/// What a NodeSet that is being deleted waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaving {
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
pub enum PartitionFate {
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
pub fn partition_fate(observed: &Observed) -> PartitionFate {
    let nodeset = &observed.nodeset;
    let Some(controller) = &observed.controller else { return PartitionFate::Unknown };
    let name = nodeset.slurm_name();
    if !is_due(nodeset, controller) {
        return PartitionFate::NotDue;
    }
    if is_set(nodeset, annotations::FORCE_PARTITION_REMOVAL) {
        return PartitionFate::Forced;
    }
    let jobs = match &observed.slurm {
        // Jobs come and go all the same where nobody can be asked about them.
        View::NotExpected | View::Unknown { .. } => return PartitionFate::Unknown,
        View::Known(known) => known.snapshot.jobs.as_ref(),
    };
    let open = jobs.and_then(|jobs| jobs.open_partitions.as_ref());
    let (Some(jobs), Some(open)) = (jobs, open) else { return PartitionFate::Unknown };
    match jobs.by_partition.get(&name).copied().unwrap_or_default() {
        _ if open.contains(&name) => PartitionFate::Open,
        0 => PartitionFate::Unnamed,
        records => PartitionFate::Named(records),
    }
}

/// Whether it matters which job records name the partition of a NodeSet.
pub fn records_matter(nodeset: &NodeSet, controller: Option<&Controller>) -> bool {
    nodeset.metadata.deletion_timestamp.is_some()
        || !nodeset.releases_partition() && controller.is_some_and(|controller| is_due(nodeset, controller))
}

/// Whether a partition of a NodeSet that stays should go if there is one.
fn is_due(nodeset: &NodeSet, controller: &Controller) -> bool {
    let stays = nodeset.metadata.deletion_timestamp.is_none();
    stays && nodeset.spec.enabled_partition().is_none() && !is_theirs(nodeset, controller)
}

/// Whether the partition called like a NodeSet is not ours to close: that of a cluster elsewhere, or one that the
/// Controller's own text defines.
fn is_theirs(nodeset: &NodeSet, controller: &Controller) -> bool {
    let extra_conf = controller.spec.extra_conf.as_deref().unwrap_or_default();
    controller.spec.external || partition_names(extra_conf).contains(&nodeset.slurm_name())
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
pub fn is_forced(nodeset: &NodeSet) -> bool {
    is_set(nodeset, annotations::FORCE_DELETE)
}

/// What a NodeSet that is being deleted waits for.
pub fn leaving(observed: &Observed, workers: &[Worker]) -> Leaving {
    let nodeset = &observed.nodeset;
    let cluster =
        observed.controller.as_ref().filter(|controller| controller.metadata.deletion_timestamp.is_none());
    if is_forced(nodeset) || cluster.is_none() {
        return Leaving::Nothing;
    }
    if !workers.is_empty() {
        return Leaving::Workers(workers.len());
    }
    let jobs = match &observed.slurm {
        View::NotExpected => return Leaving::Nothing,
        View::Unknown { .. } => None,
        View::Known(known) => known.snapshot.jobs.as_ref(),
    };
    let Some(jobs) = jobs else { return Leaving::Slurm };
    let name = nodeset.slurm_name();
    let ours = || cluster.is_some_and(|controller| !is_theirs(nodeset, controller)) && !is_shared(observed);
    let may_be_open = || jobs.open_partitions.as_ref().is_none_or(|open| open.contains(&name));
    match jobs.by_partition.get(&name).copied().unwrap_or_default() {
        0 if ours() && may_be_open() => Leaving::Open,
        0 => Leaving::Nothing,
        records => Leaving::Jobs(records),
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
