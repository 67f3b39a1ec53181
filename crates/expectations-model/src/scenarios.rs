//! The scenarios, small enough to be explored whole.

use crate::guard::Guards;
use crate::invariant::Invariant;
use crate::scenario::{Faults, Scenario, Start, UserStep};
use crate::ticks::Scale;
use expectations::Limits;

const NO_FAULTS: Faults = Faults {
    unanswered: 0,
    frozen: 0,
    crashes: 0,
    lost_answers: 0,
    late_copies: 0,
    leader_changes: 0,
    leader_stops: 0,
    jobs: 0,
    user_undrains: 0,
};

const GENERAL: &[Invariant] = &[
    Invariant::Exclusion,
    Invariant::Completeness,
    Invariant::Budget,
    Invariant::Jobs,
    Invariant::Names,
    Invariant::Mark,
    Invariant::Claims,
    Invariant::Finalizer,
    Invariant::Progress,
];

fn base(name: &'static str) -> Scenario {
    Scenario {
        name,
        replicas: 2,
        scale: Scale::Coarse,
        faults: NO_FAULTS,
        starts: &[],
        user: &[],
        has_slurm: false,
        has_claims: false,
        caches: 0,
        limits: Limits { creates: 500, deletes: 250 },
        invariants: GENERAL,
        guards: Guards::default(),
    }
}

/// A batch gets at most half of a limit.
const ONE_PER_BATCH: Limits = Limits { creates: 2, deletes: 2 };

const NOTHING: Start = Start { wanted: &[], running: &[], marked: &[], removed: &[] };

/// A worker is removed, and kept after all, while jobs start and a user undrains nodes.
pub fn jobs() -> Scenario {
    Scenario {
        faults: Faults { jobs: 1, user_undrains: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], running: &[0], ..NOTHING }, Start { removed: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[]), UserStep::Want(&[0])],
        has_slurm: true,
        ..base("jobs")
    }
}

/// A worker is removed, and kept after all, while writes land late and answers are lost.
pub fn late_writes() -> Scenario {
    Scenario {
        faults: Faults { unanswered: 1, lost_answers: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], running: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[]), UserStep::Want(&[0])],
        has_slurm: true,
        ..base("late writes")
    }
}

/// A replica freezes before one of its writes, for any time. Only what preconditions protect is checked.
pub fn frozen_holder() -> Scenario {
    Scenario {
        faults: Faults { frozen: 1, ..NO_FAULTS },
        starts: &[Start { running: &[0], marked: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[0])],
        has_slurm: true,
        invariants: &[Invariant::Names, Invariant::Mark, Invariant::Progress],
        ..base("frozen holder")
    }
}

/// Workers are created, one per batch, while creates land late.
pub fn creates() -> Scenario {
    Scenario {
        faults: Faults { unanswered: 1, crashes: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[1, 2])],
        limits: ONE_PER_BATCH,
        ..base("creates")
    }
}

/// A create is on its way when the NodeSet does not want it any more, and the replica creates other workers from its
/// caches.
pub fn late_create() -> Scenario {
    Scenario {
        scale: Scale::Fine,
        replicas: 1,
        faults: Faults { unanswered: 1, crashes: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[1, 2])],
        caches: 1,
        limits: ONE_PER_BATCH,
        ..base("late create")
    }
}

/// A worker with a claim is created, removed and created again, while writes land late.
pub fn claims() -> Scenario {
    Scenario {
        faults: Faults { unanswered: 1, crashes: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[]), UserStep::Want(&[0])],
        has_claims: true,
        ..base("claims")
    }
}

/// Replicas whose caches lag take over from each other.
pub fn hand_over() -> Scenario {
    Scenario {
        faults: NO_FAULTS,
        starts: &[Start { wanted: &[0, 1], ..NOTHING }],
        user: &[UserStep::Want(&[0])],
        caches: 2,
        ..base("hand-over")
    }
}

/// The service changes its leader.
pub fn leader_change() -> Scenario {
    Scenario {
        faults: Faults { unanswered: 1, leader_changes: 1, leader_stops: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0, 1], running: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[])],
        ..base("leader change")
    }
}

/// The NodeSet is deleted and created again, while creates land late.
pub fn deletion() -> Scenario {
    Scenario {
        faults: Faults { unanswered: 1, crashes: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], ..NOTHING }],
        user: &[UserStep::Delete, UserStep::Recreate(&[0])],
        ..base("deletion")
    }
}

/// A worker is created and removed, while answers are lost and old requests arrive.
pub fn late_requests() -> Scenario {
    Scenario {
        faults: Faults { lost_answers: 1, late_copies: 1, ..NO_FAULTS },
        starts: &[Start { wanted: &[0], ..NOTHING }],
        user: &[UserStep::Want(&[])],
        ..base("late requests")
    }
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    vec![
        jobs(),
        late_writes(),
        frozen_holder(),
        creates(),
        late_create(),
        claims(),
        hand_over(),
        leader_change(),
        deletion(),
        late_requests(),
    ]
}

/// Scenarios with a third replica and one fault each.
pub fn three_replicas() -> Vec<Scenario> {
    vec![
        with_third_replica(leader_change(), Faults { leader_changes: 1, ..NO_FAULTS }),
        with_third_replica(leader_change(), Faults { leader_stops: 1, ..NO_FAULTS }),
        with_third_replica(deletion(), Faults { unanswered: 1, ..NO_FAULTS }),
        with_third_replica(late_requests(), Faults { late_copies: 1, ..NO_FAULTS }),
    ]
}

/// More of them, which take minutes.
pub fn more_of_three_replicas() -> Vec<Scenario> {
    vec![
        with_third_replica(jobs(), Faults { jobs: 1, ..NO_FAULTS }),
        with_third_replica(late_writes(), Faults { unanswered: 1, ..NO_FAULTS }),
        with_third_replica(late_writes(), Faults { lost_answers: 1, ..NO_FAULTS }),
        with_third_replica(frozen_holder(), Faults { frozen: 1, ..NO_FAULTS }),
        with_third_replica(creates(), Faults { unanswered: 1, ..NO_FAULTS }),
        with_third_replica(claims(), Faults { unanswered: 1, ..NO_FAULTS }),
        Scenario { caches: 1, ..with_third_replica(hand_over(), NO_FAULTS) },
    ]
}

fn with_third_replica(scenario: Scenario, faults: Faults) -> Scenario {
    Scenario { replicas: 3, faults, ..scenario }
}

/// The same scenarios with more replicas, finer time and more faults: too large to be explored whole.
pub fn large() -> Vec<Scenario> {
    all().into_iter().map(enlarge).collect()
}

fn enlarge(scenario: Scenario) -> Scenario {
    let faults = Faults { crashes: 1, lost_answers: 1, late_copies: 1, ..scenario.faults };
    Scenario { scale: Scale::Fine, replicas: scenario.replicas + 1, faults, ..scenario }
}
