//! Which workers stay, are removed or are missing, by count and placement. Independent of Slurm.

use super::effect::DeleteReason;
use super::obstacle::NodeSetObstacle;
use super::removal_order::removal_order;
use crate::pod_backoff::RetryTimes;
use crate::worker::{Cause, Phase, Worker};
use jiff::Timestamp;
use slinky_api::v1beta1::ScalingMode;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pods that one plan creates, and that it deletes.
pub const BURST: usize = 250;

/// The decision about an existing worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It stays.
    Keep,
    /// It cannot be decided now: neither a cordon nor a removal goes on or is undone.
    Undecided,
    /// It is drained, then deleted.
    Remove(Cause, DeleteReason),
    /// It is deleted without drain, but not before this time: it has finished, was never bound to a node, or a user forced
    /// it.
    DeleteDirectly(DeleteReason, Option<Timestamp>),
}

/// The place of a new pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// This ordinal.
    Ordinal(i32),
    /// This Kubernetes node.
    Node(String),
}

/// Which workers stay, are removed or are missing.
#[derive(Debug, Default)]
pub struct Replicas {
    /// Decisions by pod UID. A worker without an entry is kept.
    pub dispositions: BTreeMap<String, Disposition>,
    /// Pods to create.
    pub missing: Vec<Place>,
    /// Desired number of workers.
    pub desired: usize,
    /// Why the hostname for a Kubernetes node cannot be used: its worker stays as it is, and none is created.
    pub unusable_hostnames: Vec<NodeSetObstacle>,
    /// UIDs of finished and terminating workers that are not replaced, because the NodeSet was scaled in.
    pub not_replaced: BTreeSet<String>,
}

impl Replicas {
    /// Neither a removal nor an undrain: the desired number is invalid.
    pub fn undecided(workers: &[Worker]) -> Self {
        let mut replicas = Self { desired: workers.len(), ..Self::default() };
        replicas.leave_undecided(workers, &[Cause::Update, Cause::ScaleIn]);
        replicas
    }

    /// The decision about a worker.
    pub fn disposition(&self, worker: &Worker) -> Disposition {
        self.dispositions.get(worker.uid()).copied().unwrap_or(Disposition::Keep)
    }

    /// Whether a scale-in removes a worker, or the place of one that is finished or terminating.
    pub fn is_scaled_in(&self, worker: &Worker) -> bool {
        matches!(self.disposition(worker), Disposition::Remove(_, DeleteReason::Surplus))
            || self.not_replaced.contains(worker.uid())
    }

    /// Sets the decision about a worker.
    pub fn set(&mut self, worker: &Worker, disposition: Disposition) {
        self.dispositions.insert(worker.uid().to_owned(), disposition);
    }

    /// Leaves workers that are marked for one of these causes as they are: whether the cause still applies is unknown.
    pub fn leave_undecided(&mut self, workers: &[Worker], causes: &[Cause]) {
        let is_marked = |worker: &&Worker| causes.iter().any(|cause| worker.is_marked(*cause));
        for worker in workers.iter().filter(is_marked) {
            if self.keeps(worker) {
                self.set(worker, Disposition::Undecided);
            }
        }
    }

    /// Removes a worker that has no place any more, whatever the desired number.
    pub fn remove(&mut self, worker: &Worker) {
        let disposition = if worker.is_finished() {
            Disposition::DeleteDirectly(finished_reason(worker), None)
        } else {
            Disposition::Remove(Cause::ScaleIn, DeleteReason::Unwanted)
        };
        self.set(worker, disposition);
    }

    /// Whether a worker stays.
    pub fn keeps(&self, worker: &Worker) -> bool {
        self.disposition(worker) == Disposition::Keep
    }
}

/// Decides about workers with ordinals: as many as `desired`, lowest free ordinals first.
pub fn numbered(workers: &[Worker], desired: usize, retry_times: &RetryTimes) -> Replicas {
    let mut replicas = Replicas { desired, ..Replicas::default() };
    remove_other_mode(&mut replicas, workers, ScalingMode::StatefulSet);
    let ours = || workers.iter().filter(|worker| worker.mode == Some(ScalingMode::StatefulSet));
    for worker in ours().filter(|worker| !worker.terminating && worker.is_finished()) {
        replicas.set(
            worker,
            Disposition::DeleteDirectly(finished_reason(worker), retry_times.get(&worker.name()).copied()),
        );
    }
    let mut alive: Vec<_> = ours().filter(|worker| worker.is_alive()).collect();
    // Workers already marked for scale-in stay chosen, whatever changed since: otherwise drains would be undone and
    // redone.
    alive.sort_by(|one, other| {
        let is_unmarked = |worker: &Worker| !worker.is_marked(Cause::ScaleIn);
        is_unmarked(one).cmp(&is_unmarked(other)).then_with(|| removal_order(one, other))
    });
    let surplus = alive.len().saturating_sub(desired);
    for worker in alive.into_iter().take(surplus) {
        replicas.set(worker, Disposition::Remove(Cause::ScaleIn, DeleteReason::Surplus));
    }
    let (alive, ending): (Vec<_>, Vec<_>) = ours().partition(|worker| worker.is_alive());
    let kept: Vec<_> = alive.into_iter().filter(|worker| replicas.keeps(worker)).collect();
    replicas.not_replaced = not_replaced(&ending, &kept, desired);
    let taken: BTreeSet<i32> = workers.iter().filter_map(|worker| worker.ordinal).collect();
    let free = (0..i32::MAX).filter(|ordinal| !taken.contains(ordinal));
    // Terminating pods count too, so that there are never more pods than desired.
    let missing = desired.saturating_sub(workers.len()).min(BURST);
    replicas.missing = free.take(missing).map(Place::Ordinal).collect();
    replicas
}

/// The UIDs of the finished and terminating workers (`ending`) beyond the desired number. Those whose ordinals the next
/// workers get are replaced; of the others the highest ordinals go. Nothing else takes a place away: a worker that is
/// replaced under another ordinal was not scaled in.
fn not_replaced(ending: &[&Worker], kept: &[&Worker], desired: usize) -> BTreeSet<String> {
    let surplus = (kept.len() + ending.len()).saturating_sub(desired);
    let taken: BTreeSet<i32> = kept.iter().filter_map(|worker| worker.ordinal).collect();
    let free = (0..i32::MAX).filter(|ordinal| !taken.contains(ordinal));
    let next: BTreeSet<i32> = free.take(desired.saturating_sub(kept.len())).collect();
    let mut ending: Vec<_> = ending
        .iter()
        .filter(|worker| worker.ordinal.is_none_or(|ordinal| !next.contains(&ordinal)))
        .collect();
    ending.sort_by_key(|worker| Reverse(worker.ordinal));
    ending.into_iter().take(surplus).map(|worker| worker.uid().to_owned()).collect()
}

/// Removes all workers.
pub fn remove_all(workers: &[Worker]) -> Replicas {
    let mut replicas = Replicas::default();
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        replicas.remove(worker);
    }
    replicas
}

/// Deletes all workers, whatever jobs they have.
pub fn delete_all(workers: &[Worker]) -> Replicas {
    let mut replicas = Replicas::default();
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        replicas.set(worker, Disposition::DeleteDirectly(DeleteReason::Unwanted, None));
    }
    replicas
}

/// Removes workers of the other scaling mode. One whose mode nothing shows stays.
pub fn remove_other_mode(replicas: &mut Replicas, workers: &[Worker], mode: ScalingMode) {
    let is_other = |worker: &&Worker| worker.mode.is_some_and(|other| other != mode);
    for worker in workers.iter().filter(is_other).filter(|worker| !worker.terminating) {
        replicas.remove(worker);
    }
}

/// Why a finished worker is deleted.
pub fn finished_reason(worker: &Worker) -> DeleteReason {
    if worker.phase == Phase::Succeeded { DeleteReason::Succeeded } else { DeleteReason::Failed }
}
