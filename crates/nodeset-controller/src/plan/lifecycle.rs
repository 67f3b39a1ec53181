//! How workers leave, stay and come back: marked before drained, drained before deleted, unmarked before undrained; and
//! nothing that somebody else ordered is undone or overwritten.

use super::cordon_reason;
use super::drain::{drain, is_free, undo};
use super::effect::{DeleteReason, Drain, Effect, Evidence, PodDeletion, Undo};
use super::job_state::lookup;
use super::removal_order::removal_order;
use super::replicas::{BURST, Fate, Replicas};
use super::update::Allowance;
use crate::node_facts::Nodes;
use crate::slurm::{NodeLookup, View};
use crate::worker::{Cause, Cordon, Worker};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// What all workers of a NodeSet are treated by.
pub struct Lifecycle<'a> {
    /// Their namespace.
    pub namespace: &'a str,
    /// What is known of Slurm.
    pub slurm: &'a View,
    /// The Kubernetes nodes.
    pub nodes: &'a Nodes,
    /// Types of conditions of Kubernetes nodes that explain a cordon.
    pub propagated_conditions: &'a [String],
    /// How many may be away during an update.
    pub allowance: Allowance,
    /// How long a worker has to be ready to count.
    pub min_ready: SignedDuration,
    /// Whether a reservation is made for the update: then all may be away at once.
    pub is_scheduled: bool,
    /// Whether any worker was ever seen in Slurm.
    pub had_slurm: bool,
    /// The time.
    pub now: Timestamp,
}

/// What follows for the workers.
#[derive(Debug, Default)]
pub struct LifecycleDecision {
    /// What to do.
    pub effects: Vec<Effect>,
    /// Who should leave and cannot yet.
    pub waiting: Vec<Waiting>,
}

/// Somebody who should leave and cannot yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The pod.
    pub pod: String,
    /// What it waits for.
    pub for_: WaitFor,
}

/// What a worker that should leave waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitFor {
    /// Its Slurm node to be drained, and its jobs to end.
    Drain,
    /// Word from Slurm.
    Slurm,
    /// A person: it had a job when Slurm forgot it.
    LostJob,
    /// Other workers to be available.
    Others,
    /// The delay between failures.
    Backoff(Timestamp),
}

impl Lifecycle<'_> {
    /// Decides for all workers.
    pub fn conduct(&self, workers: &[Worker], replicas: &Replicas) -> LifecycleDecision {
        let mut sorted: Vec<_> = workers.iter().collect();
        sorted.sort_by(|one, other| removal_order(one, other));
        let mut lifecycle = LifecycleDecision::default();
        // Those that leave for good are not among those that an update may count on.
        let remains = |worker: &&&Worker| !matches!(replicas.fate(worker), Fate::Leave(Cause::ScaleIn, _));
        let available =
            sorted.iter().filter(remains).filter(|worker| worker.serves(self.min_ready, self.now)).count();
        let mut deletes = Deletes { left: BURST, available };
        let held = Held::new(workers, replicas);
        for worker in sorted {
            match replicas.fate(worker) {
                _ if worker.terminating => lifecycle.effects.extend(self.on_its_way(worker)),
                Fate::Clear(why, not_before) => {
                    self.clear(worker, why, not_before, &mut deletes, &mut lifecycle);
                }
                Fate::Leave(cause, why) => {
                    self.leave(worker, (cause, why), &held, &mut deletes, &mut lifecycle);
                }
                Fate::Stay => lifecycle.effects.extend(self.stay(worker, &held)),
                Fate::Wait => {}
            }
        }
        lifecycle
    }

    fn lookup(&self, worker: &Worker) -> NodeLookup<'_> {
        lookup(self.slurm, worker)
    }

    /// A node whose slurmd is about to end gets no more jobs, whoever ended it.
    fn on_its_way(&self, worker: &Worker) -> Option<Effect> {
        match self.lookup(worker) {
            NodeLookup::Present(node) if worker.started => {
                drain(node, &cordon_reason::terminating()).map(Effect::Drain)
            }
            NodeLookup::Present(_) | NodeLookup::Absent | NodeLookup::Unknown => None,
        }
    }

    fn clear(
        &self,
        worker: &Worker,
        why: DeleteReason,
        not_before: Option<Timestamp>,
        deletes: &mut Deletes,
        lifecycle: &mut LifecycleDecision,
    ) {
        match not_before.filter(|time| *time > self.now) {
            Some(time) => lifecycle.wait(worker, WaitFor::Backoff(time)),
            None => deletes.push(worker, Evidence::NotNeeded, why, lifecycle),
        }
    }

    fn leave(
        &self,
        worker: &Worker,
        (cause, why): (Cause, DeleteReason),
        held: &Held<'_>,
        deletes: &mut Deletes,
        lifecycle: &mut LifecycleDecision,
    ) {
        let (name, lookup) = (worker.slurm_name.clone(), self.lookup(worker));
        // The pod may be the last to tell that it runs, unless the Slurm node is another one's.
        let may_run = matches!(lookup, NodeLookup::Present(_)) && !held.runs_elsewhere(worker);
        if !worker.started && !worker.was_registered() && !may_run {
            return deletes.push(worker, Evidence::NotNeeded, why, lifecycle);
        }
        match lookup {
            NodeLookup::Unknown => lifecycle.wait(worker, WaitFor::Slurm),
            NodeLookup::Absent if worker.was_busy() => lifecycle.wait(worker, WaitFor::LostJob),
            NodeLookup::Absent if matches!(self.slurm, View::NotExpected) => {
                // Somebody saw one of them in Slurm: it was there, and may be still. Who came since may have a job that
                // nobody can tell of.
                if self.had_slurm {
                    lifecycle.wait(worker, WaitFor::Slurm);
                } else {
                    deletes.push(worker, Evidence::SlurmNotExpected, why, lifecycle);
                }
            }
            NodeLookup::Absent if worker.was_registered() && !worker.is_marked(cause) => {
                lifecycle.effects.push(retire(worker, cause, None));
            }
            NodeLookup::Absent => {
                self.delete(worker, Evidence::Absent(name), (cause, why), deletes, lifecycle)
            }
            NodeLookup::Present(node) => {
                let drain = drain(node, &cordon_reason::pending_termination(self.namespace, &worker.name()));
                if drain.is_some() || !worker.is_marked(cause) {
                    lifecycle.effects.push(retire(worker, cause, drain));
                    lifecycle.wait(worker, WaitFor::Drain);
                } else if node.is_drained() {
                    self.delete(worker, Evidence::Drained(name), (cause, why), deletes, lifecycle);
                } else {
                    lifecycle.wait(worker, WaitFor::Drain);
                }
            }
        }
    }

    /// Deletes a worker; one that is replaced, only as long as enough others are available.
    fn delete(
        &self,
        worker: &Worker,
        evidence: Evidence,
        (cause, why): (Cause, DeleteReason),
        deletes: &mut Deletes,
        lifecycle: &mut LifecycleDecision,
    ) {
        let at_once = self.is_scheduled && why == DeleteReason::Outdated;
        if cause == Cause::Update && !at_once && worker.serves(self.min_ready, self.now) {
            if deletes.available <= self.allowance.floor() {
                return lifecycle.wait(worker, WaitFor::Others);
            }
            deletes.available -= 1;
        }
        deletes.push(worker, evidence, why, lifecycle);
    }

    fn stay(&self, worker: &Worker, held: &Held<'_>) -> Option<Effect> {
        let lookup = self.lookup(worker);
        let undo = |node| undo(worker, node).filter(|_| !held.by_others(worker));
        let cordoned =
            worker.node.as_ref().and_then(|name| self.nodes.get(name)).filter(|node| node.unschedulable);
        let reason = cordoned.map(|node| {
            cordon_reason::node_cordoned(node, self.namespace, &worker.name(), self.propagated_conditions)
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
                    (cause != Cause::Node || drain.is_some()).then(|| retire(worker, Cause::Node, drain))
                }
                None => Some(restore(worker, true, undo(node))),
            },
            (Cordon::Ours(_), NodeLookup::Absent) => Some(restore(worker, true, None)),
            (Cordon::Person, NodeLookup::Present(node)) => {
                let reason = cordon_reason::pod_cordoned(self.namespace, &worker.name());
                drain(node, &reason).filter(|_| is_free(node)).map(Effect::Drain)
            }
            (Cordon::None, NodeLookup::Present(node)) => match reason {
                Some(reason) if is_free(node) => Some(retire(worker, Cause::Node, drain(node, &reason))),
                Some(_) => None,
                None => undo(node).map(|undo| restore(worker, false, Some(undo))),
            },
        }
    }
}

/// What the workers of each Slurm node do to it. There may be two of one, where pods were taken over.
struct Held<'w> {
    /// How many want it out of service.
    out: BTreeMap<&'w str, usize>,
    /// Which have a worker whose slurmd may have run.
    running: BTreeSet<&'w str>,
}

impl<'w> Held<'w> {
    fn new(workers: &'w [Worker], replicas: &Replicas) -> Self {
        let mut out = BTreeMap::new();
        for worker in workers.iter().filter(|worker| holds(worker, replicas)) {
            *out.entry(worker.slurm_name.as_str()).or_default() += 1;
        }
        let running = workers.iter().filter(|worker| worker.started);
        Self { out, running: running.map(|worker| worker.slurm_name.as_str()).collect() }
    }

    /// Whether the Slurm node of a worker that did not start is another one's.
    fn runs_elsewhere(&self, worker: &Worker) -> bool {
        !worker.started && self.running.contains(worker.slurm_name.as_str())
    }

    /// Whether another worker of the same Slurm node wants that out of service: one that goes, or has a cordon. A worker
    /// with a cordon counts itself.
    fn by_others(&self, worker: &Worker) -> bool {
        let all = self.out.get(worker.slurm_name.as_str()).copied().unwrap_or_default();
        all > usize::from(worker.cordon != Cordon::None)
    }
}

fn holds(worker: &Worker, replicas: &Replicas) -> bool {
    worker.terminating || worker.cordon != Cordon::None || !matches!(replicas.fate(worker), Fate::Stay)
}

fn retire(worker: &Worker, cause: Cause, drain: Option<Drain>) -> Effect {
    Effect::Cordon { pod: worker.reference(), cause, person: worker.cordoned_by_person, drain }
}

fn restore(worker: &Worker, unmark: bool, undo: Option<Undo>) -> Effect {
    Effect::Uncordon { pod: worker.reference(), unmark, person: worker.cordoned_by_person, undo }
}

/// How many more pods this plan may delete.
struct Deletes {
    left: usize,
    available: usize,
}

impl Deletes {
    fn push(
        &mut self,
        worker: &Worker,
        evidence: Evidence,
        why: DeleteReason,
        lifecycle: &mut LifecycleDecision,
    ) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        lifecycle.effects.push(Effect::DeletePod(PodDeletion { pod: worker.reference(), evidence, why }));
    }
}

impl LifecycleDecision {
    fn wait(&mut self, worker: &Worker, for_: WaitFor) {
        self.waiting.push(Waiting { pod: worker.name(), for_ });
    }
}
