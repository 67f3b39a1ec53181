//! Which workers are replaced because they are outdated or not registered in Slurm, and when.

use super::effect::DeleteReason;
use super::mirror::slurm_state_names;
use super::registration::{OtherName, UnexplainedNodes, gets_jobs, lookup};
use super::removal_order::removal_order;
use super::replicas::{Disposition, Replicas};
use super::reservation::reservation_name;
use super::waiting::{WaitFor, Waiting};
use crate::pod_backoff::RetryTimes;
use crate::slurm::{NodeLookup, View};
use crate::timing::{UNREGISTERED_LIMIT, USELESS_AFTER};
use crate::worker::{Cause, Worker};
use jiff::{SignedDuration, Timestamp};
use slinky_api::v1beta1::{NodeSet, UnavailableLimit, UpdateStrategyType};
use slurm_rest::{Node, NodeState};

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
        // One at a time is safe, whatever a limit was meant to be that cannot be read.
        let limit = rolling.limit().unwrap_or(UnavailableLimit::Count(1));
        Self { desired, max_unavailable: limit.of(desired) }
    }

    /// How many workers must stay available.
    pub fn floor(self) -> usize {
        self.desired.saturating_sub(self.max_unavailable)
    }
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
    /// Slurm nodes that a worker may run under another name.
    pub unexplained: &'a UnexplainedNodes<'a>,
    /// The earliest time at which each pod that was replaced in vain may be replaced, by pod name.
    pub retry_times: &'a RetryTimes,
    /// How many workers may be unavailable.
    pub allowance: Allowance,
    /// How long a worker must be ready to count as available.
    pub min_ready: SignedDuration,
    /// Current time.
    pub now: Timestamp,
}

/// In which order outdated workers are chosen for replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// It is of no use to Kubernetes and Slurm. Others may have to wait until it is replaced.
    Broken,
    /// It was chosen before.
    Marked,
    /// It is not available.
    Unavailable,
    /// It is available.
    Available,
}

/// What the choice of workers to replace waits for.
#[derive(Debug, Default)]
pub struct UpdateWaits {
    /// Workers that should be replaced and cannot be yet.
    pub waiting: Vec<Waiting>,
    /// Updated workers that Slurm gives no jobs, if the update waits for them.
    pub useless: Vec<UselessWorker>,
}

/// An updated worker that is ready, and that Slurm gives no jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UselessWorker {
    /// Its pod.
    pub pod: String,
    /// The state of its Slurm node; empty if there is none.
    pub state: String,
    /// The reason of that state.
    pub reason: String,
}

impl Update<'_> {
    /// Chooses the workers to replace, among those that are kept.
    pub fn choose(&self, replicas: &mut Replicas) -> UpdateWaits {
        let outdated = |worker: &&Worker| worker.is_alive() && worker.hash != self.hash;
        let kept: Vec<_> = self.workers.iter().filter(|worker| replicas.keeps(worker)).collect();
        let outdated: Vec<_> = kept.iter().copied().filter(outdated).collect();
        let mut chosen: Vec<&Worker> = vec![];
        match self.nodeset.spec.effective_update_strategy().type_ {
            UpdateStrategyType::OnDelete => {}
            UpdateStrategyType::ScheduledUpdate => {
                let name = reservation_name(self.nodeset);
                let (reserved, others): (Vec<&Worker>, Vec<&Worker>) =
                    outdated.iter().partition(|worker| self.is_reserved(worker, &name));
                let unhealthy = others.into_iter().filter(|worker| !worker.is_healthy()).collect();
                chosen.extend(self.rolling(&kept, unhealthy));
                chosen.extend(reserved);
            }
            UpdateStrategyType::RollingUpdate => chosen.extend(self.rolling(&kept, outdated.clone())),
        }
        for worker in &chosen {
            replicas.set(worker, Disposition::Remove(Cause::Update, DeleteReason::Outdated));
        }
        let waiting = self.replace_unregistered(replicas);
        let is_complete = outdated.len() == chosen.len();
        let useless = if is_complete { vec![] } else { self.useless_updated(&kept) };
        UpdateWaits { waiting, useless }
    }

    /// The outdated workers whose turn it is: those that never ran, and as many others as may be unavailable. More than
    /// that are never drained at a time, whatever their pods report.
    fn rolling<'w>(&self, kept: &[&'w Worker], outdated: Vec<&'w Worker>) -> Vec<&'w Worker> {
        let never_ran = |worker: &&Worker| {
            !worker.started
                && !worker.is_ready()
                && !worker.was_registered()
                && lookup(self.slurm, worker) == NodeLookup::Absent
        };
        let (mut chosen, mut others): (Vec<_>, Vec<_>) = outdated.into_iter().partition(never_ran);
        others.sort_by(|one, other| {
            self.turn(one).cmp(&self.turn(other)).then_with(|| removal_order(one, other))
        });
        let remaining = |worker: &&&Worker| self.is_available(worker) && !worker.is_marked(Cause::Update);
        let mut available = kept.iter().filter(remaining).count();
        let mut left = self.allowance.max_unavailable;
        for worker in others {
            let is_available = self.turn(worker) == Turn::Available;
            if left == 0 || is_available && available <= self.allowance.floor() {
                break;
            }
            available -= usize::from(is_available);
            left -= 1;
            chosen.push(worker);
        }
        chosen
    }

    fn turn(&self, worker: &Worker) -> Turn {
        if !worker.is_healthy() && self.is_broken_in_slurm(worker) {
            Turn::Broken
        } else if worker.is_marked(Cause::Update) {
            Turn::Marked
        } else if self.is_available(worker) {
            Turn::Available
        } else {
            Turn::Unavailable
        }
    }

    /// Whether the Slurm node is out of service, and not only drained.
    fn is_broken_in_slurm(&self, worker: &Worker) -> bool {
        match lookup(self.slurm, worker) {
            NodeLookup::Present(node) => [NodeState::Down, NodeState::NotResponding, NodeState::Fail]
                .iter()
                .any(|state| node.is(state)),
            NodeLookup::Absent => true,
            NodeLookup::Unknown => false,
        }
    }

    /// Whether it is available in Kubernetes, and Slurm would give it a job.
    fn is_available(&self, worker: &Worker) -> bool {
        worker.is_serving(self.min_ready, self.now) && gets_jobs(self.slurm, worker)
    }

    fn useless_updated(&self, kept: &[&Worker]) -> Vec<UselessWorker> {
        let is_useless = |worker: &&&Worker| {
            let since = worker.ready.and_then(|ready| ready.since);
            worker.hash == self.hash
                && worker.is_serving(self.min_ready, self.now)
                && since.is_some_and(|since| self.now.duration_since(since) >= USELESS_AFTER)
                && !gets_jobs(self.slurm, worker)
        };
        let describe = |worker: &&Worker| {
            let node = match lookup(self.slurm, worker) {
                NodeLookup::Present(node) => node.clone(),
                NodeLookup::Absent | NodeLookup::Unknown => Node::default(),
            };
            let state = slurm_state_names(&node).join("+");
            UselessWorker { pod: worker.name(), state, reason: node.reason }
        };
        kept.iter().filter(is_useless).map(describe).collect()
    }

    fn is_reserved(&self, worker: &Worker, reservation: &str) -> bool {
        match lookup(self.slurm, worker) {
            NodeLookup::Present(node) => node.is(&NodeState::Maintenance) && node.reservation == reservation,
            NodeLookup::Absent | NodeLookup::Unknown => false,
        }
    }

    /// Replaces healthy workers without a Slurm node record, which get no jobs. slurmd does not register again by
    /// itself after its record was deleted. They count against maxUnavailable. A worker with a job when last observed,
    /// or whose slurmd may have registered under another name, is never replaced. Returns the latter.
    fn replace_unregistered(&self, replicas: &mut Replicas) -> Vec<Waiting> {
        if !matches!(self.slurm, View::Known(_)) {
            return vec![];
        }
        let serving = self
            .workers
            .iter()
            .filter(|worker| replicas.keeps(worker) && worker.is_serving(self.min_ready, self.now));
        let budget = serving.count().saturating_sub(self.allowance.floor());
        let unregistered =
            self.workers.iter().filter(|worker| replicas.keeps(worker) && self.is_unregistered(worker));
        let (elsewhere, mut unregistered): (Vec<_>, Vec<_>) =
            unregistered.partition(|worker| self.unexplained.run_by(worker) == OtherName::Perhaps);
        unregistered.retain(|worker| {
            let is_certain = self.unexplained.run_by(worker) == OtherName::No;
            is_certain && !worker.was_busy() && self.has_backed_off(worker)
        });
        unregistered.sort_by(|one, other| removal_order(one, other));
        for worker in unregistered.into_iter().take(budget) {
            replicas.set(worker, Disposition::Remove(Cause::Update, DeleteReason::Unregistered));
        }
        elsewhere.into_iter().map(|worker| Waiting { pod: worker.name(), for_: WaitFor::OtherName }).collect()
    }

    /// Whether the last replacement of a pod of this name is long enough ago.
    fn has_backed_off(&self, worker: &Worker) -> bool {
        self.retry_times.get(&worker.name()).is_none_or(|time| *time <= self.now)
    }

    fn is_unregistered(&self, worker: &Worker) -> bool {
        let since = worker.ready.and_then(|ready| ready.since);
        worker.is_healthy()
            && since.is_some_and(|since| self.now.duration_since(since) >= UNREGISTERED_LIMIT)
            && lookup(self.slurm, worker) == NodeLookup::Absent
    }
}

/// Time until the next healthy worker that gets no jobs counts as useless, or as unregistered.
pub fn next_useless(workers: &[Worker], slurm: &View, now: Timestamp) -> Option<SignedDuration> {
    let useless = workers.iter().filter(|worker| worker.is_healthy() && !gets_jobs(slurm, worker));
    let ready = useless.filter_map(|worker| worker.ready?.since);
    ready
        .flat_map(|since| [USELESS_AFTER, UNREGISTERED_LIMIT].map(|limit| limit - now.duration_since(since)))
        .filter(SignedDuration::is_positive)
        .min()
}
