//! Which workers are replaced because they are outdated or not registered in Slurm, and when.

use super::effect::DeleteReason;
use super::job_state::lookup;
use super::removal_order::removal_order;
use super::replicas::{Disposition, Replicas};
use super::reservation::reservation_name;
use crate::slurm::{NodeLookup, View};
use crate::timing::UNREGISTERED_LIMIT;
use crate::worker::{Cause, Worker};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slinky_api::v1beta1::{NodeSet, UpdateStrategyType};
use slurm_rest::NodeState;

/// How many workers may be unavailable during a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Desired number of workers.
    pub desired: usize,
    /// How many of them may be unavailable.
    pub max_unavailable: usize,
}

impl Allowance {
    /// Resolves maxUnavailable of a NodeSet with this desired number of workers.
    pub fn of(nodeset: &NodeSet, desired: usize) -> Self {
        let rolling = nodeset.spec.effective_update_strategy().rolling_update.unwrap_or_default();
        let max_unavailable = match rolling.max_unavailable.read() {
            Ok(Some(IntOrString::Int(number))) => usize::try_from(number).unwrap_or(1),
            Ok(Some(IntOrString::String(text))) => {
                percentage(&text).map_or(1, |percent| desired.saturating_mul(percent).div_ceil(100))
            }
            Ok(None) | Err(_) => 1,
        };
        Self { desired, max_unavailable: max_unavailable.min(desired) }
    }

    /// How many workers must stay available.
    pub fn floor(self) -> usize {
        self.desired.saturating_sub(self.max_unavailable)
    }
}

/// `25%` as 25.
fn percentage(text: &str) -> Option<usize> {
    text.strip_suffix('%')?.parse().ok()
}

/// Inputs for choosing the workers to replace.
pub struct Update<'a> {
    /// The NodeSet.
    pub nodeset: &'a NodeSet,
    /// Its workers.
    pub workers: &'a [Worker],
    /// The hash of its current revision.
    pub hash: &'a str,
    /// The state of Slurm.
    pub slurm: &'a View,
    /// How many workers may be unavailable.
    pub allowance: Allowance,
    /// How long a worker must be ready to count as available.
    pub min_ready: SignedDuration,
    /// Current time.
    pub now: Timestamp,
}

impl Update<'_> {
    /// Chooses the workers to replace, among those that are kept.
    pub fn choose(&self, replicas: &mut Replicas) {
        let outdated = |worker: &&Worker| worker.is_alive() && worker.hash != self.hash;
        let (strategy, mut chosen) = (self.nodeset.spec.effective_update_strategy().type_, vec![]);
        let kept: Vec<_> = self.workers.iter().filter(|worker| replicas.keeps(worker)).collect();
        let candidates: Vec<_> = kept.iter().copied().filter(outdated).collect();
        if strategy != UpdateStrategyType::OnDelete {
            chosen.extend(candidates.iter().copied().filter(|worker| !worker.is_healthy()));
        }
        match strategy {
            UpdateStrategyType::OnDelete => {}
            UpdateStrategyType::ScheduledUpdate => {
                let name = reservation_name(self.nodeset);
                chosen.extend(candidates.iter().filter(|worker| self.is_reserved(worker, &name)));
            }
            UpdateStrategyType::RollingUpdate => chosen.extend(self.rolling(&kept, candidates)),
        }
        for worker in chosen {
            replicas.set(worker, Disposition::Remove(Cause::Update, DeleteReason::Outdated));
        }
        self.replace_unregistered(replicas);
    }

    /// Workers already marked stay chosen; more are chosen while enough others are available.
    fn rolling<'w>(&self, kept: &[&'w Worker], candidates: Vec<&'w Worker>) -> Vec<&'w Worker> {
        let (mut chosen, mut others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .filter(|worker| worker.is_healthy())
            .partition(|worker| worker.is_marked(Cause::Update));
        let serving = |workers: &[&Worker]| {
            workers.iter().filter(|worker| worker.is_serving(self.min_ready, self.now)).count()
        };
        let others_serving = serving(kept).saturating_sub(serving(&chosen));
        let budget = others_serving.saturating_sub(self.allowance.floor());
        others.retain(|worker| worker.is_serving(self.min_ready, self.now));
        others.sort_by(|one, other| removal_order(one, other));
        chosen.extend(others.into_iter().take(budget));
        chosen
    }

    fn is_reserved(&self, worker: &Worker, reservation: &str) -> bool {
        match self.slurm.lookup(&worker.slurm_name) {
            NodeLookup::Present(node) => node.is(&NodeState::Maintenance) && node.reservation == reservation,
            NodeLookup::Absent | NodeLookup::Unknown => false,
        }
    }

    /// Replaces healthy workers without a Slurm node record, which get no jobs. slurmd does not register again by
    /// itself after its record was deleted. They count against maxUnavailable; a worker with a job when last observed
    /// is never replaced.
    fn replace_unregistered(&self, replicas: &mut Replicas) {
        if !matches!(self.slurm, View::Known(_)) {
            return;
        }
        let serving = self
            .workers
            .iter()
            .filter(|worker| replicas.keeps(worker) && worker.is_serving(self.min_ready, self.now));
        let budget = serving.count().saturating_sub(self.allowance.floor());
        let mut unregistered: Vec<_> = self
            .workers
            .iter()
            .filter(|worker| replicas.keeps(worker) && worker.is_healthy() && !worker.was_busy())
            .filter(|worker| self.is_unregistered(worker))
            .collect();
        unregistered.sort_by(|one, other| removal_order(one, other));
        for worker in unregistered.into_iter().take(budget) {
            replicas.set(worker, Disposition::Remove(Cause::Update, DeleteReason::Unregistered));
        }
    }

    fn is_unregistered(&self, worker: &Worker) -> bool {
        let since = worker.ready.and_then(|ready| ready.since);
        since.is_some_and(|since| self.now.duration_since(since) >= UNREGISTERED_LIMIT)
            && lookup(self.slurm, worker) == NodeLookup::Absent
    }
}

/// Time until the next healthy, unregistered worker may be replaced.
pub fn next_unregistered(workers: &[Worker], slurm: &View, now: Timestamp) -> Option<SignedDuration> {
    let is_absent = |worker: &Worker| lookup(slurm, worker) == NodeLookup::Absent;
    let unregistered = workers.iter().filter(|worker| worker.is_healthy() && is_absent(worker));
    let ready = unregistered.filter_map(|worker| worker.ready?.since);
    ready
        .map(|since| UNREGISTERED_LIMIT - now.duration_since(since))
        .filter(SignedDuration::is_positive)
        .min()
}
