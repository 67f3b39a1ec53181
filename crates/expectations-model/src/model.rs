//! The model as stateright explores it.

use crate::action::Action;
use crate::invariant::Invariant;
use crate::progress::Recoveries;
use crate::scenario::Scenario;
use crate::state::State;
use stateright::{Model, Property};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// A scenario to explore.
#[derive(Debug)]
pub struct ClusterModel {
    scenario: Scenario,
    recoveries: Recoveries,
    /// When exploration ends.
    until: Option<SystemTime>,
    /// Whether states were left unexplored.
    is_cut: AtomicBool,
}

impl ClusterModel {
    pub fn new(scenario: Scenario, until: Option<SystemTime>) -> Self {
        Self { scenario, recoveries: Recoveries::default(), until, is_cut: AtomicBool::new(false) }
    }

    /// Whether exploration ended before all states were known.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }
}

impl Model for ClusterModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.scenario.starts.iter().map(|start| State::new(&self.scenario, start)).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.until.is_some_and(|until| SystemTime::now() > until) {
            self.is_cut.store(true, Ordering::Relaxed);
        } else {
            state.possible_actions(&self.scenario, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(state.after(action, &self.scenario))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.scenario.invariants.iter().map(|invariant| property(*invariant)).collect()
    }
}

/// stateright takes conditions as functions that capture nothing, so there is one for each invariant.
fn property(invariant: Invariant) -> Property<ClusterModel> {
    let condition: fn(&ClusterModel, &State) -> bool = match invariant {
        Invariant::Exclusion => |_, state| state.violation != Some(Invariant::Exclusion),
        Invariant::Completeness => |_, state| state.violation != Some(Invariant::Completeness),
        Invariant::Budget => |_, state| state.violation != Some(Invariant::Budget),
        Invariant::Jobs => |_, state| state.violation != Some(Invariant::Jobs),
        Invariant::Names => |_, state| state.violation != Some(Invariant::Names),
        Invariant::Mark => |_, state| state.violation != Some(Invariant::Mark),
        Invariant::Claims => |_, state| state.violation != Some(Invariant::Claims),
        Invariant::Finalizer => |_, state| state.violation != Some(Invariant::Finalizer),
        Invariant::Progress => {
            |model, state| state.violation.is_some() || model.recoveries.recovers(state, &model.scenario)
        }
    };
    Property::always(invariant.name(), condition)
}
