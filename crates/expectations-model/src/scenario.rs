//! The clusters, users and faults that are explored.

use crate::guard::Guards;
use crate::invariant::Invariant;
use crate::ticks::Scale;
use expectations::{Limits, Timing};

/// How often each fault, and each event outside of the operator, may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Writes that are not answered: they land late or never.
    pub unanswered: u8,
    /// Writes of a process that freezes between the check of the deadline and the sending: they land at any time later.
    pub frozen: u8,
    /// Restarts of a replica that requests or holds a batch.
    pub crashes: u8,
    /// Answers of the service that do not arrive.
    pub lost_answers: u8,
    /// Copies of a `Begin` that arrive at any time later.
    pub late_copies: u8,
    /// Ends of a leader's term.
    pub leader_changes: u8,
    /// Stops of a leader in good order.
    pub leader_stops: u8,
    /// Jobs that Slurm starts.
    pub jobs: u8,
    /// Nodes that a user undrains.
    pub user_undrains: u8,
}

/// What the user of the NodeSet does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserStep {
    /// Changes the workers that are wanted.
    Want(&'static [usize]),
    /// Deletes the NodeSet.
    Delete,
    /// Creates a NodeSet of the same name, once the old one is gone.
    Recreate(&'static [usize]),
}

/// One cluster with its faults.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name in reports.
    pub name: &'static str,
    /// Number of replicas.
    pub replicas: usize,
    /// The constants of the protocol.
    pub scale: Scale,
    /// Budgets of faults.
    pub faults: Faults,
    /// The NodeSet at the start; several are explored.
    pub starts: &'static [Start],
    /// The steps of the user, each at any time.
    pub user: &'static [UserStep],
    /// Whether workers register in Slurm.
    pub has_slurm: bool,
    /// Whether workers have claims that are deleted at scale-in.
    pub has_claims: bool,
    /// How many of the replicas plan from watch caches that lag, and read live only if they must; the others always read
    /// live.
    pub caches: usize,
    /// Limits of the service.
    pub limits: Limits,
    /// What is checked.
    pub invariants: &'static [Invariant],
    /// The guards in place.
    pub guards: Guards,
}

/// The NodeSet at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// The workers that the spec wants.
    pub wanted: &'static [usize],
    /// The workers that run.
    pub running: &'static [usize],
    /// The workers that run, are marked and drained.
    pub marked: &'static [usize],
    /// The workers that were removed: drained Slurm nodes are left.
    pub removed: &'static [usize],
}

impl Scenario {
    /// The same scenario with other guards.
    #[must_use]
    pub fn with_guards(self, guards: Guards) -> Self {
        Self { guards, ..self }
    }

    /// The same scenario with other constants.
    #[must_use]
    pub fn with_scale(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    pub(crate) fn timing(&self) -> Timing {
        self.scale.timing(self.guards)
    }

    /// The same scenario with other invariants.
    #[must_use]
    pub fn with_invariants(self, invariants: &'static [Invariant]) -> Self {
        Self { invariants, ..self }
    }
}
