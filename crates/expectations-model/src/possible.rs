//! Which actions are possible in a state.

use crate::action::{Action, Fate, Recipient, Scope, Source};
use crate::plan::{View, count, plan};
use crate::replica::{Batch, Phase, Request};
use crate::scenario::{Scenario, UserStep};
use crate::service::Service;
use crate::state::State;
use crate::world::{Effect, WORKERS};

impl State {
    /// All actions that are possible. A state that violates an invariant has none.
    pub fn possible_actions(&self, scenario: &Scenario, actions: &mut Vec<Action>) {
        if self.violation.is_some() {
            return;
        }
        self.world_actions(scenario, actions);
        self.service_actions(actions);
        for replica in 0..self.replicas.len() {
            self.replica_actions(replica, scenario, actions);
        }
        actions.extend((0..self.copies.len()).map(Action::DeliverCopy));
        actions.extend((0..self.writes.len()).map(Action::Land));
        if self.depends_on_time() {
            actions.push(Action::Tick);
        }
    }

    /// Without open batches, writes and waits nothing changes with time, so that it need not pass.
    fn depends_on_time(&self) -> bool {
        !self.writes.is_empty()
            || self.leader.depends_on_time(self.now)
            || self.replicas.iter().any(|replica| !matches!(replica.phase, Phase::Idle))
    }

    fn world_actions(&self, scenario: &Scenario, actions: &mut Vec<Action>) {
        let is_ready = match scenario.user.get(self.user_steps) {
            Some(UserStep::Want(_) | UserStep::Delete) => true,
            Some(UserStep::Recreate(_)) => self.world.nodeset.is_none(),
            None => false,
        };
        if is_ready {
            actions.push(Action::UserStep);
        }
        for ordinal in 0..WORKERS {
            let node = self.world.workers[ordinal].node;
            if node.is_some_and(|node| node.drained && !node.down) && self.faults.user_undrains > 0 {
                actions.push(Action::UserUndrains(ordinal));
            }
            if node.is_some_and(|node| node.takes_jobs() && !node.job) && self.faults.jobs > 0 {
                actions.push(Action::JobStarts(ordinal));
            }
            if node.is_some_and(|node| node.job) {
                actions.push(Action::JobEnds(ordinal));
            }
            if self.world.has_garbage(ordinal) {
                actions.push(Action::CollectGarbage(ordinal));
            }
        }
    }

    fn service_actions(&self, actions: &mut Vec<Action>) {
        if self.leader.is_renewed() && self.faults.leader_changes > 0 {
            actions.push(Action::StopRenewing);
        }
        if self.leader.is_renewed() && self.faults.leader_stops > 0 {
            actions.push(Action::StopLeader);
        }
        if self.leader.ended(self.now).is_some() {
            actions.push(Action::TakeOver);
        }
    }

    fn replica_actions(&self, index: usize, scenario: &Scenario, actions: &mut Vec<Action>) {
        let replica = &self.replicas[index];
        actions.extend(self.sync(index));
        match &replica.phase {
            Phase::Idle => self.plan_actions(index, scenario, actions),
            Phase::Asking(request) => self.request_actions(index, request, scenario, actions),
            Phase::Holding(batch) => self.batch_actions(index, batch, scenario, actions),
        }
        if self.faults.crashes > 0 && !matches!(replica.phase, Phase::Idle) {
            actions.push(Action::Crash(index));
        }
    }

    /// The events that have not reached the caches of a replica.
    pub fn sync(&self, index: usize) -> impl Iterator<Item = Action> {
        let cache = self.replicas[index].cache.as_ref();
        let is_behind =
            |cache: &&View| cache.contains != self.world.landed || cache.workers != self.world.workers;
        let workers = cache.filter(is_behind).map(|_| Action::SyncWorkers(index));
        let nodeset = cache.filter(|cache| cache.nodeset != self.world.nodeset);
        workers.into_iter().chain(nodeset.map(|_| Action::SyncNodeSet(index)))
    }

    fn plan_actions(&self, index: usize, scenario: &Scenario, actions: &mut Vec<Action>) {
        for source in [Source::Live, Source::Cache] {
            for scope in [Scope::All, Scope::Creates] {
                if self.is_plan_possible(index, source, scope, scenario) {
                    actions.push(Action::Plan(index, source, scope));
                }
            }
        }
    }

    /// A request without basis is answered at once, so that it is possible only when it can be answered.
    pub fn is_plan_possible(&self, index: usize, source: Source, scope: Scope, scenario: &Scenario) -> bool {
        self.build_request(index, source, scope, scenario).is_some_and(|request| {
            request.basis.is_some()
                || (self.leader.leads(self.now) && !self.leader.is_waiting(&request, scenario.guards))
        })
    }

    fn request_actions(
        &self,
        index: usize,
        request: &Request,
        scenario: &Scenario,
        actions: &mut Vec<Action>,
    ) {
        if request.is_given_up(self.now, scenario) {
            actions.push(Action::GiveUp(index));
            return;
        }
        let is_answered = |service: &Service| !service.is_waiting(request, scenario.guards);
        let leader = self.leader.leads(self.now) && is_answered(&self.leader);
        let old_leader = self.old_leader.as_ref().is_some_and(is_answered);
        let recipients = [(leader, Recipient::Leader), (old_leader, Recipient::OldLeader)];
        for (_, recipient) in recipients.into_iter().filter(|(is_answered, _)| *is_answered) {
            actions.push(Action::Deliver(index, recipient));
            if self.faults.lost_answers > 0 {
                actions.push(Action::LoseAnswer(index, recipient));
            }
        }
        if self.faults.late_copies > 0 {
            actions.push(Action::CopyBegin(index));
        }
    }

    fn batch_actions(&self, index: usize, batch: &Batch, scenario: &Scenario, actions: &mut Vec<Action>) {
        if batch.effects.is_empty() || !batch.may_send(self.now, scenario) {
            actions.push(Action::Finish(index));
            return;
        }
        actions.push(Action::Execute(index, Fate::Answered));
        if self.faults.unanswered > 0 {
            actions.push(Action::Execute(index, Fate::Unanswered));
        }
        if self.faults.frozen > 0 {
            actions.push(Action::Execute(index, Fate::Frozen));
        }
    }

    /// The request for what a replica plans, if it may request anything now.
    pub fn build_request(
        &self,
        index: usize,
        source: Source,
        scope: Scope,
        scenario: &Scenario,
    ) -> Option<Request> {
        let replica = &self.replicas[index];
        if replica.phase != Phase::Idle {
            return None;
        }
        let basis = match (source, &replica.known) {
            (Source::Live, known) if known.is_some() || replica.cache.is_none() => known.as_ref(),
            (Source::Cache, None) => None,
            (Source::Cache, Some(known)) if known.is_in_cache(replica.cache.as_ref()?, scenario.guards) => {
                Some(known)
            }
            (Source::Live | Source::Cache, _) => return None,
        };
        let basis = basis.map(|known| known.basis.clone());
        let live = View::of(&self.world);
        let view = if source == Source::Live { &live } else { replica.cache.as_ref()? };
        let nodeset = view.nodeset?;
        let mut effects = plan(view, scenario.guards);
        if scope == Scope::Creates {
            let planned = effects.len();
            effects.retain(|effect| matches!(effect, Effect::Create(_)));
            if effects.len() == planned {
                return None;
            }
        }
        (!effects.is_empty()).then(|| Request {
            batch: self.batches + 1,
            uid: nodeset.uid,
            generation: nodeset.generation,
            basis,
            ops: count(&effects),
            is_live: source == Source::Live,
            contains: view.contains,
            wanted: nodeset.wanted(),
            effects,
            sent_at: self.now,
        })
    }
}
