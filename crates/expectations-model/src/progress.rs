//! Whether the cluster recovers: from a state on, one schedule without faults is followed to its end.
//!
//! The schedule is one of the paths of the model, so that it shows that the end *can* be reached without further faults,
//! within the time that the protocol allows: a replica with work is granted a batch within the hold (and the time that a
//! leader's term takes to end).

use crate::action::{Action, Fate, Recipient, Scope, Source};
use crate::plan::is_as_wanted;
use crate::replica::Phase;
use crate::scenario::Scenario;
use crate::state::State;
use crate::symmetry::fingerprint;
use crate::ticks::{TERM, Tick};
use crate::world::WORKERS;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A schedule that is longer has no end.
const LONGEST_SCHEDULE: usize = 1000;

/// The ticks until the next grant, or the end, from states that were followed already.
#[derive(Debug, Default)]
pub struct Recoveries(Mutex<BTreeMap<u64, Tick>>);

impl Recoveries {
    /// Whether the cluster recovers from a state.
    pub fn recovers(&self, state: &State, scenario: &Scenario) -> bool {
        // The hold, a leader's term, and the tick in which a replica requests again.
        let longest_wait = scenario.scale.hold() + TERM + 1;
        let mut known = self.0.lock();
        let mut state = state.clone();
        let mut path = Vec::new();
        let mut wait = loop {
            let id = fingerprint(&state);
            if let Some(wait) = known.get(&id) {
                break *wait;
            }
            let action = state.recovery(scenario);
            path.push((id, action));
            let Some(action) = action else { break 0 };
            if path.len() > LONGEST_SCHEDULE {
                return false;
            }
            state = state.after(action, scenario);
        };
        for (id, action) in path.into_iter().rev() {
            wait = match action {
                Some(Action::Tick) => wait + 1,
                Some(Action::Execute(..)) => 0,
                Some(_) | None => wait,
            };
            if wait > longest_wait {
                return false;
            }
            known.insert(id, wait);
        }
        true
    }
}

impl State {
    /// The next action without a fault; `None` at the end, when the cluster is as wanted.
    fn recovery(&self, scenario: &Scenario) -> Option<Action> {
        self.recovery_of_world()
            .or_else(|| (0..self.replicas.len()).find_map(|index| self.recovery_of_replica(index, scenario)))
            .or_else(|| self.leader.ended(self.now).map(|_| Action::TakeOver))
            .or_else(|| (0..self.replicas.len()).find_map(|index| self.new_plan(index, scenario)))
            .or_else(|| (!self.is_recovered()).then_some(Action::Tick))
    }

    fn is_recovered(&self) -> bool {
        is_as_wanted(&self.world) && self.replicas.iter().all(|replica| matches!(replica.phase, Phase::Idle))
    }

    fn recovery_of_world(&self) -> Option<Action> {
        let land = (!self.writes.is_empty()).then_some(Action::Land(0));
        let has_job = |ordinal: &usize| self.world.workers[*ordinal].node.is_some_and(|node| node.job);
        land.or_else(|| {
            (0..WORKERS).find(|ordinal| self.world.has_garbage(*ordinal)).map(Action::CollectGarbage)
        })
        .or_else(|| (0..WORKERS).find(has_job).map(Action::JobEnds))
    }

    fn recovery_of_replica(&self, index: usize, scenario: &Scenario) -> Option<Action> {
        match &self.replicas[index].phase {
            Phase::Asking(request) if request.is_given_up(self.now, scenario) => Some(Action::GiveUp(index)),
            Phase::Asking(request) => {
                let is_answered =
                    self.leader.leads(self.now) && !self.leader.is_waiting(request, scenario.guards);
                is_answered.then_some(Action::Deliver(index, Recipient::Leader))
            }
            Phase::Holding(batch) if batch.effects.is_empty() || !batch.may_send(self.now, scenario) => {
                Some(Action::Finish(index))
            }
            Phase::Holding(_) => Some(Action::Execute(index, Fate::Answered)),
            Phase::Idle => self.sync(index).next(),
        }
    }

    fn new_plan(&self, index: usize, scenario: &Scenario) -> Option<Action> {
        let is_possible = |source: &Source| self.is_plan_possible(index, *source, Scope::All, scenario);
        let source = [Source::Cache, Source::Live].into_iter().find(is_possible)?;
        Some(Action::Plan(index, source, Scope::All))
    }
}
