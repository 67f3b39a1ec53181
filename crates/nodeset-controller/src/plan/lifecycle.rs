//! The next lifecycle step of each worker: marked before drained, drained before deleted, unmarked before undrained.
//! Drains and cordons by others are neither undone nor overwritten.

use super::drain_owner::{drain, may_drain, undo};
use super::drain_reason;
use super::effect::{DeleteReason, Drain, Effect, Evidence, PodDeletion, Undo};
use super::registration::{OtherName, UnexplainedNodes, lacks_node_of_its_name, lookup};
use super::removal_order::removal_order;
use super::replicas::{BURST, Disposition, Replicas};
use super::update::Allowance;
use super::waiting::{WaitFor, Waiting};
use crate::node_facts::Nodes;
use crate::slurm::{NodeLookup, View};
use crate::worker::{Cause, Cordon, Worker};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Inputs for deciding the next lifecycle step of each worker.
pub struct Lifecycle<'a> {
    /// Namespace of the pods.
    pub namespace: &'a str,
    /// The state of Slurm.
    pub slurm: &'a View,
    /// Slurm nodes that a worker may run under another name.
    pub unexplained: &'a UnexplainedNodes<'a>,
    /// The pods that are recorded as cordoned by a person.
    pub cordoned_pods: &'a BTreeSet<String>,
    /// The Kubernetes nodes.
    pub nodes: &'a Nodes,
    /// Condition types of Kubernetes nodes that are copied into the drain reason of a cordoned node.
    pub propagated_conditions: &'a [String],
    /// How many workers may be unavailable during an update.
    pub allowance: Allowance,
    /// How long a worker must be ready to count as available.
    pub min_ready: SignedDuration,
    /// Whether the update runs in a reservation: then all workers may be unavailable at once.
    pub is_scheduled: bool,
    /// Whether any worker was ever registered in Slurm.
    pub had_slurm: bool,
    /// Current time.
    pub now: Timestamp,
}

/// The decisions about all workers.
#[derive(Debug, Default)]
pub struct LifecycleDecision {
    /// Effects on pods and Slurm nodes.
    pub effects: Vec<Effect>,
    /// Workers that should be removed and cannot be yet.
    pub waiting: Vec<Waiting>,
}

impl Lifecycle<'_> {
    /// Decides the next step of each worker.
    pub fn decide(&self, workers: &[Worker], replicas: &Replicas) -> LifecycleDecision {
        let mut sorted: Vec<_> = workers.iter().collect();
        sorted.sort_by(|one, other| removal_order(one, other));
        let mut decision = LifecycleDecision::default();
        // Workers removed by scale-in do not count towards the availability that an update must keep.
        let remains = |worker: &&&Worker| {
            !matches!(replicas.disposition(worker), Disposition::Remove(Cause::ScaleIn, _))
        };
        let available = sorted
            .iter()
            .filter(remains)
            .filter(|worker| worker.is_serving(self.min_ready, self.now))
            .count();
        let mut deletes = DeleteBudget { left: BURST, available };
        let usage = SlurmNodeUsage::new(workers, replicas);
        for worker in sorted {
            match replicas.disposition(worker) {
                _ if worker.terminating => decision.effects.extend(self.drain_terminating(worker)),
                Disposition::DeleteDirectly(why, not_before) => {
                    self.delete_directly(worker, why, not_before, &mut deletes, &mut decision);
                }
                Disposition::Remove(cause, why) => {
                    self.remove(worker, (cause, why), &usage, &mut deletes, &mut decision);
                }
                Disposition::Keep => decision.effects.extend(self.keep(worker, &usage)),
                Disposition::Undecided => {}
            }
        }
        decision
    }

    fn lookup(&self, worker: &Worker) -> NodeLookup<'_> {
        lookup(self.slurm, worker)
    }

    /// Drains the Slurm node of a terminating pod, also if a person deleted the pod: its slurmd must not get more jobs.
    fn drain_terminating(&self, worker: &Worker) -> Option<Effect> {
        match self.lookup(worker) {
            NodeLookup::Present(node) if worker.started => {
                drain(node, &drain_reason::terminating()).map(Effect::Drain)
            }
            NodeLookup::Present(_) | NodeLookup::Absent | NodeLookup::Unknown => None,
        }
    }

    fn delete_directly(
        &self,
        worker: &Worker,
        why: DeleteReason,
        not_before: Option<Timestamp>,
        deletes: &mut DeleteBudget,
        decision: &mut LifecycleDecision,
    ) {
        match not_before.filter(|time| *time > self.now) {
            Some(time) => decision.wait(worker, WaitFor::Backoff(time)),
            None => deletes.push(worker, Evidence::NotNeeded, why, decision),
        }
    }

    fn remove(
        &self,
        worker: &Worker,
        (cause, why): (Cause, DeleteReason),
        usage: &SlurmNodeUsage<'_>,
        deletes: &mut DeleteBudget,
        decision: &mut LifecycleDecision,
    ) {
        // A bound pod may run, and have a job, before its status reports a started container, unless another pod runs
        // its Slurm node.
        if worker.node.is_none() || !worker.was_registered() && usage.runs_elsewhere(worker) {
            return deletes.push(worker, Evidence::NotNeeded, why, decision);
        }
        let other_name = if worker.started && lacks_node_of_its_name(self.slurm, worker) {
            self.unexplained.run_by(worker)
        } else {
            OtherName::No
        };
        match self.lookup(worker) {
            NodeLookup::Unknown => decision.wait(worker, WaitFor::Slurm),
            NodeLookup::Absent if worker.was_busy() => decision.wait(worker, WaitFor::LostJob),
            _ if other_name == OtherName::Perhaps => decision.wait(worker, WaitFor::OtherName),
            _ if other_name == OtherName::Unknown => decision.wait(worker, WaitFor::Slurm),
            NodeLookup::Absent if matches!(self.slurm, View::NoRestApi) => {
                // A worker was registered before, so slurmctld may still run, and newer workers may have jobs that
                // cannot be listed.
                if self.had_slurm {
                    decision.wait(worker, WaitFor::Slurm);
                } else {
                    deletes.push(worker, Evidence::NoRestApi, why, decision);
                }
            }
            NodeLookup::Absent if worker.was_registered() && !worker.is_marked(cause) => {
                decision.effects.push(cordon(worker, cause, None));
            }
            NodeLookup::Absent => {
                let (node, addresses) = (worker.slurm_name.clone(), worker.addresses.clone());
                let evidence = Evidence::Absent { node, addresses };
                self.delete(worker, evidence, (cause, why), deletes, decision);
            }
            NodeLookup::Present(node) => {
                let drain = drain(node, &drain_reason::pending_termination(self.namespace, &worker.name()));
                if drain.is_some() || !worker.is_marked(cause) {
                    decision.effects.push(cordon(worker, cause, drain));
                    decision.wait(worker, WaitFor::Drain);
                } else if node.is_drained() {
                    let (node, addresses) = (worker.slurm_name.clone(), worker.addresses.clone());
                    let evidence = Evidence::Drained { node, addresses };
                    self.delete(worker, evidence, (cause, why), deletes, decision);
                } else {
                    decision.wait(worker, WaitFor::Drain);
                }
            }
        }
    }

    /// Deletes a worker. One that is replaced is deleted only while enough others are available.
    fn delete(
        &self,
        worker: &Worker,
        evidence: Evidence,
        (cause, why): (Cause, DeleteReason),
        deletes: &mut DeleteBudget,
        decision: &mut LifecycleDecision,
    ) {
        // The cordon must outlive the pod; the record of it is written first.
        if worker.cordoned_by_person && cause == Cause::Update && !self.cordoned_pods.contains(&worker.name())
        {
            return decision.wait(worker, WaitFor::Drain);
        }
        let at_once = self.is_scheduled && why == DeleteReason::Outdated;
        if cause == Cause::Update && !at_once && worker.is_serving(self.min_ready, self.now) {
            if deletes.available <= self.allowance.floor() {
                return decision.wait(worker, WaitFor::Others);
            }
            deletes.available -= 1;
        }
        deletes.push(worker, evidence, why, decision);
    }

    /// Cordons or uncordons a worker that stays, as its Kubernetes node is.
    fn keep(&self, worker: &Worker, usage: &SlurmNodeUsage<'_>) -> Option<Effect> {
        let lookup = self.lookup(worker);
        let undo = |node| undo(worker, node).filter(|_| !usage.is_kept_out_by_another(worker));
        let cordoned =
            worker.node.as_ref().and_then(|name| self.nodes.get(name)).filter(|node| node.unschedulable);
        let reason = cordoned.map(|node| {
            drain_reason::node_cordoned(node, self.namespace, &worker.name(), self.propagated_conditions)
        });
        match (worker.cordon, lookup) {
            (_, NodeLookup::Unknown) | (Cordon::Person | Cordon::None, NodeLookup::Absent) => None,
            (Cordon::Ours(Cause::Node), _)
                if worker.node.as_ref().is_some_and(|name| !self.nodes.contains_key(name)) =>
            {
                None
            }
            (Cordon::Ours(cause), NodeLookup::Present(node)) => match reason {
                Some(reason) => {
                    let drain = drain(node, &reason);
                    (cause != Cause::Node || drain.is_some()).then(|| cordon(worker, Cause::Node, drain))
                }
                None => Some(uncordon(worker, true, undo(node))),
            },
            (Cordon::Ours(_), NodeLookup::Absent) => Some(uncordon(worker, true, None)),
            (Cordon::Person, NodeLookup::Present(node)) => {
                let reason = drain_reason::pod_cordoned(self.namespace, &worker.name());
                drain(node, &reason).filter(|_| may_drain(node)).map(Effect::Drain)
            }
            (Cordon::None, NodeLookup::Present(node)) => match reason {
                Some(reason) if may_drain(node) => Some(cordon(worker, Cause::Node, drain(node, &reason))),
                Some(_) => None,
                None => undo(node).map(|undo| uncordon(worker, false, Some(undo))),
            },
        }
    }
}

/// How the workers of each Slurm node use it. Two workers can share one Slurm node after pods were adopted.
struct SlurmNodeUsage<'w> {
    /// How many workers keep the Slurm node out of service.
    out_of_service: BTreeMap<&'w str, usize>,
    /// Slurm nodes with a worker whose slurmd may have run.
    running: BTreeSet<&'w str>,
}

impl<'w> SlurmNodeUsage<'w> {
    fn new(workers: &'w [Worker], replicas: &Replicas) -> Self {
        let mut out_of_service = BTreeMap::new();
        for worker in workers.iter().filter(|worker| keeps_out_of_service(worker, replicas)) {
            *out_of_service.entry(worker.slurm_name.as_str()).or_default() += 1;
        }
        let running = workers.iter().filter(|worker| worker.started);
        Self { out_of_service, running: running.map(|worker| worker.slurm_name.as_str()).collect() }
    }

    /// Whether another worker runs the Slurm node of a worker that did not start.
    fn runs_elsewhere(&self, worker: &Worker) -> bool {
        !worker.started && self.running.contains(worker.slurm_name.as_str())
    }

    /// Whether another worker keeps the same Slurm node out of service, because it is removed or cordoned.
    /// `out_of_service` also counts `worker` itself if it is cordoned.
    fn is_kept_out_by_another(&self, worker: &Worker) -> bool {
        let all = self.out_of_service.get(worker.slurm_name.as_str()).copied().unwrap_or_default();
        all > usize::from(worker.cordon != Cordon::None)
    }
}

fn keeps_out_of_service(worker: &Worker, replicas: &Replicas) -> bool {
    worker.terminating
        || worker.cordon != Cordon::None
        || !matches!(replicas.disposition(worker), Disposition::Keep)
}

fn cordon(worker: &Worker, cause: Cause, drain: Option<Drain>) -> Effect {
    Effect::Cordon { pod: worker.reference(), cause, person: worker.cordoned_by_person, drain }
}

fn uncordon(worker: &Worker, unmark: bool, undo: Option<Undo>) -> Effect {
    Effect::Uncordon { pod: worker.reference(), unmark, person: worker.cordoned_by_person, undo }
}

/// Limits of the deletes in one plan.
struct DeleteBudget {
    /// How many more pods this plan may delete.
    left: usize,
    /// Available workers that are not deleted so far.
    available: usize,
}

impl DeleteBudget {
    fn push(
        &mut self,
        worker: &Worker,
        evidence: Evidence,
        why: DeleteReason,
        decision: &mut LifecycleDecision,
    ) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        decision.effects.push(Effect::DeletePod(PodDeletion { pod: worker.reference(), evidence, why }));
    }
}

impl LifecycleDecision {
    fn wait(&mut self, worker: &Worker, for_: WaitFor) {
        self.waiting.push(Waiting { pod: worker.name(), for_ });
    }
}
