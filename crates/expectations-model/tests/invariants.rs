//! The protocol keeps its promises in every state of every scenario.

use expectations_model::{Bounds, Scenario, check, scenarios};
use rstest::rstest;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;

#[rstest]
#[case::of_two_replicas(scenarios::all())]
#[case::of_three_replicas(scenarios::three_replicas())]
fn invariants_hold_in_every_state(#[case] scenarios: Vec<Scenario>) {
    let threads = available_parallelism().map_or(1, NonZeroUsize::get);
    for scenario in scenarios {
        let report = check(scenario, Bounds { time: None, threads });
        println!("{report:?}");
        assert!(report.violation.is_none(), "{:#?}", report.violation);
        assert!(report.is_complete && report.unique_states > 10_000, "{report:?}");
    }
}
