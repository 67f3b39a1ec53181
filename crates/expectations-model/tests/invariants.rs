//! The protocol keeps its promises in every state of every scenario.

use expectations_model::{Bounds, Scenario, check, scenarios};
use rstest::rstest;

#[rstest]
#[case(scenarios::jobs())]
#[case(scenarios::late_writes())]
#[case(scenarios::frozen_holder())]
#[case(scenarios::creates())]
#[case(scenarios::late_create())]
#[case(scenarios::claims())]
#[case(scenarios::hand_over())]
#[case(scenarios::leader_change())]
#[case(scenarios::deletion())]
#[case(scenarios::late_requests())]
fn invariants_hold_in_every_state(#[case] scenario: Scenario) {
    let report = check(scenario, Bounds { time: None, threads: 1 });
    println!("{report:?}");
    assert!(report.violation.is_none(), "{:#?}", report.violation);
    assert!(report.is_complete && report.unique_states > 10_000, "{report:?}");
}
