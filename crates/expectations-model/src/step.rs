//! How the cluster changes with each action.

use crate::action::{Action, Fate, Recipient, Scope, Source};
use crate::guard::{Guard, Guards};
use crate::replica::{Batch, Known, Phase, Replica, Request, Results};
use crate::scenario::{Scenario, UserStep};
use crate::service::Service;
use crate::state::{State, Write};
use crate::world::{Effect, Kind, Node, NodeSet, Ordinals, World};
use expectations::{Answer, Granted, Predecessor};
use std::mem;

impl State {
    /// The state after a possible action.
    pub fn after(&self, action: Action, scenario: &Scenario) -> Self {
        let mut state = self.clone();
        state.perform(action, scenario);
        state.forget_ended_batches();
        state
    }

    fn perform(&mut self, action: Action, scenario: &Scenario) {
        match action {
            Action::Tick => self.tick(scenario),
            Action::UserStep => self.user_step(scenario),
            Action::UserUndrains(ordinal) => self.user_undrains(ordinal),
            Action::JobStarts(ordinal) => {
                self.faults.jobs -= 1;
                self.set_job(ordinal, true);
            }
            Action::JobEnds(ordinal) => self.set_job(ordinal, false),
            Action::CollectGarbage(ordinal) => self.world.collect_garbage(ordinal),
            Action::SyncWorkers(replica) => {
                if let Some(cache) = &mut self.replicas[replica].cache {
                    (cache.workers, cache.contains) = (self.world.workers, self.world.landed);
                }
            }
            Action::SyncNodeSet(replica) => {
                if let Some(cache) = &mut self.replicas[replica].cache {
                    cache.nodeset = self.world.nodeset;
                }
            }
            Action::Plan(replica, source, scope) => self.plan(replica, source, scope, scenario),
            Action::Deliver(replica, recipient) => self.deliver(replica, recipient, scenario),
            Action::LoseAnswer(replica, recipient) => {
                self.faults.lost_answers -= 1;
                if let Phase::Asking(request) = self.replicas[replica].phase.clone() {
                    self.begin(&request, recipient, scenario);
                }
            }
            Action::CopyBegin(replica) => {
                self.faults.late_copies -= 1;
                if let Phase::Asking(request) = &self.replicas[replica].phase {
                    self.copies.push(request.clone());
                }
            }
            Action::DeliverCopy(copy) => {
                let copy = self.copies.remove(copy);
                if self.leader.leads(self.now) {
                    self.begin(&copy, Recipient::Leader, scenario);
                }
            }
            Action::GiveUp(replica) => self.replicas[replica].phase = Phase::Idle,
            Action::Execute(replica, fate) => self.execute(replica, fate, scenario),
            Action::Finish(replica) => self.finish(replica, scenario),
            Action::Land(write) => {
                let write = self.writes.remove(write);
                self.land(&write, scenario);
            }
            Action::Crash(replica) => {
                self.faults.crashes -= 1;
                let has_cache = self.replicas[replica].cache.is_some();
                self.replicas[replica] = Replica::new(&self.world, has_cache);
            }
            Action::StopRenewing => {
                self.faults.leader_changes -= 1;
                self.leader.stop_renewing(self.now);
            }
            Action::StopLeader => {
                self.faults.leader_stops -= 1;
                self.leader.stop();
            }
            Action::TakeOver => self.take_over(scenario),
        }
    }

    fn tick(&mut self, scenario: &Scenario) {
        self.now += 1;
        let was_open = self.leader.open.is_some();
        self.leader.advance(self.now, scenario.guards);
        if let Some(old_leader) = &mut self.old_leader {
            old_leader.advance(self.now, scenario.guards);
        }
        if was_open && self.leader.open.is_none() {
            self.note_unknown_end();
        }
        let now = self.now;
        self.writes.retain(|write| write.can_land(now, scenario));
    }

    fn user_step(&mut self, scenario: &Scenario) {
        let step = scenario.user[self.user_steps];
        self.user_steps += 1;
        match (step, &mut self.world.nodeset) {
            (UserStep::Want(wanted), Some(nodeset)) => {
                nodeset.wanted = Ordinals::of(wanted);
                nodeset.generation += 1;
            }
            (UserStep::Delete, Some(nodeset)) => {
                nodeset.deleting = true;
                nodeset.generation += 1;
            }
            (UserStep::Recreate(wanted), _) => {
                let (uid, wanted) = (self.world.uid(), Ordinals::of(wanted));
                self.world.nodeset = Some(NodeSet { uid, generation: 1, wanted, deleting: false });
            }
            (UserStep::Want(_) | UserStep::Delete, None) => {}
        }
    }

    fn user_undrains(&mut self, ordinal: usize) {
        self.faults.user_undrains -= 1;
        if let Some(node) = &mut self.world.workers[ordinal].node {
            node.drained = false;
        }
        for write in self.writes.iter_mut().filter(|write| write.effect.ordinal() == Some(ordinal)) {
            write.is_excused = true;
        }
    }

    fn set_job(&mut self, ordinal: usize, job: bool) {
        if let Some(node) = &mut self.world.workers[ordinal].node {
            node.job = job;
        }
    }

    fn take_over(&mut self, scenario: &Scenario) {
        let predecessor = match self.leader.ended(self.now) {
            Some(Predecessor::Unknown) if scenario.guards.has(Guard::HoldAtStart) => Predecessor::Unknown,
            Some(_) | None => Predecessor::Settled,
        };
        let leader = Service::start(self.epochs, predecessor, self.now, scenario);
        self.epochs += 1;
        let old_leader = mem::replace(&mut self.leader, leader);
        self.old_leader = (!scenario.guards.has(Guard::TermEnd)).then_some(old_leader);
        self.note_unknown_end();
    }

    fn plan(&mut self, index: usize, source: Source, scope: Scope, scenario: &Scenario) {
        let Some(request) = self.build_request(index, source, scope, scenario) else { return };
        if let [removal @ Effect::RemoveFinalizer(_)] = request.effects[..]
            && !scenario.guards.has(Guard::FinalizerInBatch)
        {
            self.world.land(removal, request.uid, scenario.guards);
            return;
        }
        let has_basis = request.basis.is_some();
        self.batches = request.batch;
        self.replicas[index].phase = Phase::Asking(request);
        if !has_basis {
            self.deliver(index, Recipient::Leader, scenario);
            // The answer is `NeedFresh`, and the fresh view is read at once.
            if let Some(request) = self.build_request(index, Source::Live, scope, scenario) {
                self.batches = request.batch;
                self.replicas[index].phase = Phase::Asking(request);
            }
        }
    }

    /// A leader answers a request.
    fn begin(&mut self, request: &Request, recipient: Recipient, scenario: &Scenario) -> Option<Answer> {
        let service = match recipient {
            Recipient::Leader => &mut self.leader,
            Recipient::OldLeader => self.old_leader.as_mut()?,
        };
        let was_open = service.open == Some(request.batch);
        let was_half_open = service.is_half_open();
        let answer = service.begin(request, self.now, scenario.guards);
        if matches!(answer, Answer::Granted(_)) && !was_open {
            self.note_grant(request, was_half_open, scenario);
        }
        Some(answer)
    }

    fn deliver(&mut self, index: usize, recipient: Recipient, scenario: &Scenario) {
        let Phase::Asking(request) = mem::replace(&mut self.replicas[index].phase, Phase::Idle) else {
            return;
        };
        let answer = self.begin(&request, recipient, scenario);
        let now = self.now;
        let replica = &mut self.replicas[index];
        match answer {
            Some(Answer::Granted(granted)) => {
                // A basis is good for one grant: its end makes a new one.
                replica.known = None;
                let mut batch = build_batch(request, granted);
                if !scenario.guards.has(Guard::DeadlineFromFirstSending) {
                    batch.sent_at = now;
                }
                replica.phase = Phase::Holding(batch);
            }
            Some(Answer::NeedFresh(basis)) => replica.known = Some(Known { basis, closed: None }),
            Some(Answer::Wait(_) | Answer::NotOwner(_)) | None => {}
        }
    }

    fn execute(&mut self, index: usize, fate: Fate, scenario: &Scenario) {
        let Phase::Holding(batch) = &mut self.replicas[index].phase else { return };
        let effect = batch.effects.remove(0);
        let mut write = Write::new(effect, batch, self.now);
        let was_sent = mem::take(&mut batch.is_repeating);
        if !may_execute(effect, &self.world, scenario.guards) {
            batch.is_uncertain |= was_sent;
            return;
        }
        if let Effect::Undrain(ordinal) = effect {
            for write in self.writes.iter_mut().filter(|other| other.batch != write.batch) {
                write.is_node_undrained |= write.effect.ordinal() == Some(ordinal);
            }
        }
        if fate == Fate::Answered {
            let has_landed = self.land(&write, scenario);
            self.add_result(index, effect, has_landed);
            return;
        }
        if fate == Fate::Frozen {
            self.faults.frozen -= 1;
            write.checked_at = None;
        } else {
            self.faults.unanswered -= 1;
        }
        self.writes.push(write);
        let Phase::Holding(batch) = &mut self.replicas[index].phase else { return };
        if effect.has_precondition() {
            // Sent again, unchanged, until the deadline.
            batch.effects.insert(0, effect);
            batch.is_repeating = true;
        } else {
            batch.is_uncertain = true;
        }
    }

    fn add_result(&mut self, index: usize, effect: Effect, has_landed: bool) {
        let Phase::Holding(batch) = &mut self.replicas[index].phase else { return };
        batch.results.add(effect, has_landed, &self.world);
        if !has_landed && effect.has_precondition() {
            // The pod changed since the plan: the rest is left to the next one.
            batch.effects.retain(|other| other.ordinal() != effect.ordinal());
        }
    }

    fn finish(&mut self, index: usize, scenario: &Scenario) {
        let Phase::Holding(batch) = mem::replace(&mut self.replicas[index].phase, Phase::Idle) else {
            return;
        };
        let is_certain = !batch.is_uncertain && !batch.is_repeating;
        if !is_certain && scenario.guards.has(Guard::DoneWhenAnswered) {
            return;
        }
        let was_open = self.leader.open == Some(batch.key);
        let mut closed = self
            .leader
            .leads(self.now)
            .then(|| self.leader.done(batch.key, self.now, scenario.guards))
            .flatten();
        if let Some(old_leader) = &mut self.old_leader {
            closed = closed.or_else(|| old_leader.done(batch.key, self.now, scenario.guards));
        }
        if was_open && closed.is_some() {
            self.note_done(&batch.results);
        }
        let results = Some(batch.results).filter(|_| self.replicas[index].cache.is_some());
        self.replicas[index].known = closed.map(|basis| Known { basis, closed: results });
    }
}

/// The reads that a batch makes right before a write. They and the write are one step: what happens in between is no
/// different from what happens while an unanswered write is on its way.
fn may_execute(effect: Effect, world: &World, guards: Guards) -> bool {
    let worker = effect.ordinal().map(|ordinal| world.workers[ordinal]).unwrap_or_default();
    let is_idle = worker.node.is_none_or(Node::is_drained_and_idle);
    match effect {
        Effect::Create(_) => !guards.has(Guard::StaleClaim) || !worker.has_stale_claim(),
        Effect::Delete(..) => !guards.has(Guard::ReadBeforeDelete) || is_idle,
        Effect::SetDown(_) => !guards.has(Guard::ReadBeforeDown) || is_idle,
        Effect::Undrain(_) => {
            !guards.has(Guard::UnmarkBeforeUndrain) || worker.pod.is_some_and(|pod| !pod.marked)
        }
        Effect::Mark(..)
        | Effect::Unmark(..)
        | Effect::GiveUpClaim(..)
        | Effect::KeepClaim(..)
        | Effect::Drain(_)
        | Effect::RemoveFinalizer(_) => true,
    }
}

/// The batch as granted: the first of the plan first.
fn build_batch(request: Request, granted: Granted) -> Batch {
    let Request { batch: key, uid, wanted, mut effects, sent_at, .. } = request;
    let (mut creates, mut deletes) = (granted.creates, granted.deletes);
    let take = |left: &mut u32| {
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        is_left
    };
    effects.retain(|effect| match effect.kind() {
        Kind::Create => take(&mut creates),
        Kind::Delete => take(&mut deletes),
        Kind::Other => true,
    });
    let results = Results { only_deleted: Some(Vec::new()), ..Results::default() };
    Batch { key, uid, wanted, effects, sent_at, results, is_repeating: false, is_uncertain: false }
}
