//! Who stays, who leaves and who is missing, as far as numbers and places go. Nothing here depends on Slurm.

use super::effect::DeleteReason;
use super::removal_order::removal_order;
use crate::pod_backoff::RetryTimes;
use crate::worker::{Cause, Phase, Worker};
use jiff::Timestamp;
use slinky_api::v1beta1::ScalingMode;
use std::collections::{BTreeMap, BTreeSet};

/// Most pods that one plan makes, and most that it deletes.
pub const BURST: usize = 250;

/// What becomes of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays.
    Stay,
    /// Nobody can tell now whether it stays: whatever was begun waits.
    Wait,
    /// It leaves, as soon as no job holds it.
    Leave(Cause, DeleteReason),
    /// It ended by itself and makes room, but not before this time.
    Clear(DeleteReason, Option<Timestamp>),
}

/// Where a new pod goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It gets this number.
    Ordinal(i32),
    /// It goes to this Kubernetes node.
    Node(String),
}

/// Who stays, who leaves, who is missing.
#[derive(Debug, Default)]
pub struct Replicas {
    /// What becomes of each worker, by UID; those that are not named stay.
    pub fates: BTreeMap<String, Fate>,
    /// Pods to make.
    pub missing: Vec<Place>,
    /// How many workers there should be.
    pub desired: usize,
}

impl Replicas {
    /// What becomes of a worker.
    pub fn fate(&self, worker: &Worker) -> Fate {
        self.fates.get(worker.uid()).copied().unwrap_or(Fate::Stay)
    }

    /// Decides about a worker.
    pub fn decide(&mut self, worker: &Worker, fate: Fate) {
        self.fates.insert(worker.uid().to_owned(), fate);
    }

    /// Leaves those as they are that were to leave for such a cause: whether they still are cannot be told now.
    pub fn suspend(&mut self, workers: &[Worker], causes: &[Cause]) {
        let is_open = |worker: &&Worker| causes.iter().any(|cause| worker.is_marked(*cause));
        for worker in workers.iter().filter(is_open) {
            if self.stays(worker) {
                self.decide(worker, Fate::Wait);
            }
        }
    }

    /// A worker has no place any more, however many are wanted.
    pub fn dismiss(&mut self, worker: &Worker) {
        let fate = if worker.is_finished() {
            Fate::Clear(why_ended(worker), None)
        } else {
            Fate::Leave(Cause::ScaleIn, DeleteReason::Unwanted)
        };
        self.decide(worker, fate);
    }

    /// Whether a worker stays.
    pub fn stays(&self, worker: &Worker) -> bool {
        self.fate(worker) == Fate::Stay
    }
}

/// Decides about numbered workers: as many as `desired`, the lowest free numbers first.
pub fn numbered(workers: &[Worker], desired: usize, retry_times: &RetryTimes) -> Replicas {
    let mut replicas = Replicas { desired, ..Replicas::default() };
    leave_old_mode(&mut replicas, workers, ScalingMode::StatefulSet);
    let ours = || workers.iter().filter(|worker| worker.mode == Some(ScalingMode::StatefulSet));
    for worker in ours().filter(|worker| !worker.terminating && worker.is_finished()) {
        replicas.decide(worker, Fate::Clear(why_ended(worker), retry_times.get(&worker.name()).copied()));
    }
    let mut alive: Vec<_> = ours().filter(|worker| worker.is_alive()).collect();
    // Those that were chosen before are chosen again, whatever happened since.
    alive.sort_by(|one, other| {
        let chosen = |worker: &Worker| !worker.is_marked(Cause::ScaleIn);
        chosen(one).cmp(&chosen(other)).then_with(|| removal_order(one, other))
    });
    let surplus = alive.len().saturating_sub(desired);
    for worker in alive.into_iter().take(surplus) {
        replicas.decide(worker, Fate::Leave(Cause::ScaleIn, DeleteReason::Surplus));
    }
    let taken: BTreeSet<i32> = workers.iter().filter_map(|worker| worker.ordinal).collect();
    let free = (0..i32::MAX).filter(|ordinal| !taken.contains(ordinal));
    // Whoever is still there counts, on its way out too: never more pods than wanted.
    let missing = desired.saturating_sub(workers.len()).min(BURST);
    replicas.missing = free.take(missing).map(Place::Ordinal).collect();
    replicas
}

/// Everybody leaves.
pub fn nobody(workers: &[Worker]) -> Replicas {
    let mut replicas = Replicas::default();
    for worker in workers.iter().filter(|worker| !worker.terminating) {
        replicas.dismiss(worker);
    }
    replicas
}

/// Workers of the other scaling mode leave.
pub fn leave_old_mode(replicas: &mut Replicas, workers: &[Worker], mode: ScalingMode) {
    for worker in workers.iter().filter(|worker| worker.mode != Some(mode) && !worker.terminating) {
        replicas.dismiss(worker);
    }
}

/// Why a worker that ended makes room.
pub fn why_ended(worker: &Worker) -> DeleteReason {
    if worker.phase == Phase::Succeeded { DeleteReason::Succeeded } else { DeleteReason::Failed }
}
