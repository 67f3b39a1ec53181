//! Explores a scenario and reports the result.

use crate::invariant::Invariant;
use crate::model::ClusterModel;
use crate::scenario::Scenario;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::{Duration, SystemTime};

/// How much is explored, and how.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// States that are reached later are checked, but not left.
    pub time: Option<Duration>,
    /// Number of threads; one thread finds the same states in the same order every time.
    pub threads: usize,
}

/// What was found in a scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario.
    pub scenario: &'static str,
    /// States reached, with repetitions.
    pub states: usize,
    /// Different states.
    pub unique_states: usize,
    /// The largest distance of a state from the start.
    pub depth: usize,
    /// Whether no state is left to explore.
    pub is_complete: bool,
    /// Time taken.
    pub time: Duration,
    /// The invariants that were checked.
    pub invariants: &'static [Invariant],
    /// The violation with the shortest path that was found.
    pub violation: Option<Violation>,
}

/// A path that violates an invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant's name.
    pub invariant: &'static str,
    /// One line for each step.
    pub steps: Vec<String>,
}

/// Explores a scenario breadth first, until all states are known, time is over or a violation is found.
pub fn check(scenario: Scenario, bounds: Bounds) -> Report {
    let (name, invariants) = (scenario.name, scenario.invariants);
    let started_at = SystemTime::now();
    let model = ClusterModel::new(scenario, bounds.time.map(|time| started_at + time));
    let checker = model.checker().threads(bounds.threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let violations = checker.discoveries().into_iter().map(|(invariant, path)| {
        let steps = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
        Violation { invariant, steps }
    });
    let violation = violations.min_by_key(|violation| (violation.steps.len(), violation.invariant));
    Report {
        scenario: name,
        states: checker.state_count(),
        unique_states: checker.unique_state_count(),
        depth: checker.max_depth(),
        is_complete: violation.is_none() && !checker.model().is_cut(),
        time: started_at.elapsed().unwrap_or_default(),
        invariants,
        violation,
    }
}
