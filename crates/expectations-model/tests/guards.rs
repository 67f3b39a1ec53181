//! Every guard is needed: without it, an invariant is violated.

use expectations_model::{Bounds, Guard, Guards, Invariant, Scenario, check, scenarios};
use rstest::rstest;

#[rstest]
#[case(Guard::Grace, scenarios::late_writes(), &[Invariant::Exclusion])]
#[case(Guard::Deadline, scenarios::late_writes(), &[Invariant::Exclusion])]
#[case(Guard::DeadlineFromFirstSending, scenarios::late_writes(), &[Invariant::Exclusion])]
#[case(Guard::HoldAtStart, scenarios::leader_change(), &[Invariant::Exclusion])]
#[case(Guard::TermEnd, scenarios::leader_change(), &[Invariant::Exclusion])]
#[case(Guard::DoneWhenAnswered, scenarios::late_writes(), &[Invariant::Exclusion])]
#[case(Guard::ResourceVersion, scenarios::frozen_holder(), &[Invariant::Mark])]
#[case(Guard::UnmarkBeforeUndrain, scenarios::frozen_holder(), &[Invariant::Mark])]
#[case(Guard::ReadBeforeDelete, scenarios::jobs(), &[Invariant::Jobs])]
#[case(Guard::ResultsInSnapshot, scenarios::hand_over(), &[Invariant::Completeness])]
#[case(Guard::DeleteEvent, scenarios::hand_over(), &[Invariant::Completeness])]
#[case(Guard::FreshViewInNewEpoch, scenarios::leader_change(), &[Invariant::Completeness])]
#[case(Guard::FreshViewAfterHandOver, scenarios::hand_over(), &[Invariant::Completeness])]
#[case(Guard::Number, scenarios::hand_over(), &[Invariant::Completeness])]
#[case(Guard::HalfOpenAfterLease, scenarios::claims(), &[Invariant::Exclusion])]
#[case(Guard::NumberAtHalfOpenEnd, scenarios::creates(), &[Invariant::Completeness])]
#[case(Guard::HalfOpenUnderOpenBatch, scenarios::late_create(), &[Invariant::Completeness])]
#[case(Guard::ReadBeforeDown, scenarios::jobs(), &[Invariant::Jobs])]
#[case(Guard::FinalizerInBatch, scenarios::deletion(), &[Invariant::Finalizer])]
#[case(Guard::StaleClaim, scenarios::claims(), &[Invariant::Claims])]
#[case(Guard::FixedName, scenarios::creates(), &[Invariant::Names])]
fn invariant_is_violated_without_the_guard(
    #[case] guard: Guard,
    #[case] scenario: Scenario,
    #[case] invariants: &'static [Invariant],
) {
    let name = scenario.name;
    let scenario = scenario.with_guards(Guards::without(guard)).with_invariants(invariants);
    let report = check(scenario, Bounds { time: None, threads: 1 });
    let violation = report.violation.expect("no violation was found");
    println!(
        "{guard:?} | {name} | {} | {} steps: {:#?}",
        violation.invariant,
        violation.steps.len(),
        violation.steps
    );
    assert!(invariants.iter().any(|invariant| invariant.name() == violation.invariant), "{violation:?}");
}
