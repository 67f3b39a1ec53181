//! Which workers are replaced because their template is old, or because Slurm does not know them, and when.

use super::effect::DeleteReason;
use super::job_state::lookup;
use super::removal_order::removal_order;
use super::replicas::{Fate, Replicas};
use crate::slurm::{NodeLookup, View};
use crate::worker::{Cause, Worker};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slinky_api::v1beta1::{NodeSet, UpdateStrategyType};
use slurm_rest::NodeState;

/// How long a healthy worker may be unknown to Slurm before it is replaced: slurmd registers within seconds.
const UNREGISTERED_LIMIT: SignedDuration = SignedDuration::from_mins(2);

/// How much of the workforce may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How many workers there should be.
    pub desired: usize,
    /// How many of them may be unavailable.
    pub max_unavailable: usize,
}

impl Allowance {
    /// What a NodeSet allows when it should have so many workers.
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

    /// How many must be available.
    pub fn floor(self) -> usize {
        self.desired.saturating_sub(self.max_unavailable)
    }
}

/// `25%` as 25.
fn percentage(text: &str) -> Option<usize> {
    text.strip_suffix('%')?.parse().ok()
}

/// The question that an update answers.
pub struct Update<'a> {
    /// The NodeSet.
    pub nodeset: &'a NodeSet,
    /// Its workers.
    pub workers: &'a [Worker],
    /// The hash of its current revision.
    pub hash: &'a str,
    /// What is known of Slurm.
    pub slurm: &'a View,
    /// How much may be away.
    pub allowance: Allowance,
    /// How long a worker has to be ready to count.
    pub min_ready: SignedDuration,
    /// The time.
    pub now: Timestamp,
}

impl Update<'_> {
    /// Chooses workers to replace, among those that stay.
    pub fn choose(&self, replicas: &mut Replicas) {
        let outdated = |worker: &&Worker| worker.is_alive() && worker.hash != self.hash;
        let (strategy, mut chosen) = (self.nodeset.spec.effective_update_strategy().type_, vec![]);
        let staying: Vec<_> = self.workers.iter().filter(|worker| replicas.stays(worker)).collect();
        let candidates: Vec<_> = staying.iter().copied().filter(outdated).collect();
        if strategy != UpdateStrategyType::OnDelete {
            chosen.extend(candidates.iter().copied().filter(|worker| !worker.is_healthy()));
        }
        match strategy {
            UpdateStrategyType::OnDelete => {}
            UpdateStrategyType::ScheduledUpdate => {
                let name = reservation_name(self.nodeset);
                chosen.extend(candidates.iter().filter(|worker| self.is_reserved(worker, &name)));
            }
            UpdateStrategyType::RollingUpdate => chosen.extend(self.rolling(&staying, candidates)),
        }
        for worker in chosen {
            replicas.decide(worker, Fate::Leave(Cause::Update, DeleteReason::Outdated));
        }
        self.replace_unregistered(replicas);
    }

    /// Those chosen before stay chosen; more are chosen as long as enough others serve.
    fn rolling<'w>(&self, staying: &[&'w Worker], candidates: Vec<&'w Worker>) -> Vec<&'w Worker> {
        let (mut chosen, mut others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .filter(|worker| worker.is_healthy())
            .partition(|worker| worker.is_marked(Cause::Update));
        let serving = |workers: &[&Worker]| {
            workers.iter().filter(|worker| worker.serves(self.min_ready, self.now)).count()
        };
        let others_serve = serving(staying).saturating_sub(serving(&chosen));
        let budget = others_serve.saturating_sub(self.allowance.floor());
        others.retain(|worker| worker.serves(self.min_ready, self.now));
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

    /// Healthy workers that Slurm does not know do no work. A slurmd whose record is gone does not come back by itself,
    /// so they are replaced, as slowly as an update; never one that had a job when it was last seen.
    fn replace_unregistered(&self, replicas: &mut Replicas) {
        if !matches!(self.slurm, View::Known(_)) {
            return;
        }
        let serving = self
            .workers
            .iter()
            .filter(|worker| replicas.stays(worker) && worker.serves(self.min_ready, self.now));
        let budget = serving.count().saturating_sub(self.allowance.floor());
        let mut lost: Vec<_> = self
            .workers
            .iter()
            .filter(|worker| replicas.stays(worker) && worker.is_healthy() && !worker.was_busy())
            .filter(|worker| self.is_unregistered(worker))
            .collect();
        lost.sort_by(|one, other| removal_order(one, other));
        for worker in lost.into_iter().take(budget) {
            replicas.decide(worker, Fate::Leave(Cause::Update, DeleteReason::Unregistered));
        }
    }

    fn is_unregistered(&self, worker: &Worker) -> bool {
        let since = worker.ready.and_then(|ready| ready.since);
        since.is_some_and(|since| self.now.duration_since(since) >= UNREGISTERED_LIMIT)
            && lookup(self.slurm, worker) == NodeLookup::Absent
    }
}

/// In how long the next healthy worker that Slurm does not know will have been ready for too long.
pub fn becomes_overdue(workers: &[Worker], slurm: &View, now: Timestamp) -> Option<SignedDuration> {
    let is_absent = |worker: &Worker| lookup(slurm, worker) == NodeLookup::Absent;
    let strangers = workers.iter().filter(|worker| worker.is_healthy() && is_absent(worker));
    let ready = strangers.filter_map(|worker| worker.ready?.since);
    ready
        .map(|since| UNREGISTERED_LIMIT - now.duration_since(since))
        .filter(SignedDuration::is_positive)
        .min()
}

/// The reservation in which a NodeSet is updated.
pub fn reservation_name(nodeset: &NodeSet) -> String {
    format!("SlurmOperatorMaint-{}", kube::ResourceExt::name_any(nodeset))
}
