//! Explores all scenarios of the expectations protocol and prints a table.

use anyhow::{Result, ensure};
use clap::Parser;
use expectations_model::{Bounds, Report, Scenario, check, scenarios};
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

/// Check the expectations protocol in every state that small clusters can reach.
///
/// Scenarios with two and three replicas are explored whole; then larger ones, with more faults and finer time, for a
/// limited time. A violated invariant is printed with the steps that lead to it.
#[derive(Parser)]
#[command(name = "cargo xtask model", bin_name = "cargo xtask model")]
struct Args {
    /// Time for the larger scenarios, in seconds.
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// Number of threads; as many as the machine has cores by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let threads = args.threads.or_else(|| available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    println!(
        "{:<22} {:>8} {:>10} {:>10} {:>6} {:>8} {:>8}  invariants",
        "scenario", "replicas", "states", "unique", "depth", "whole", "seconds"
    );
    let whole = [scenarios::all(), scenarios::three_replicas(), scenarios::more_of_three_replicas()].concat();
    let large = scenarios::large();
    let share = u32::try_from(large.len()).unwrap_or(u32::MAX);
    let time = Duration::from_secs(args.seconds) / share;
    let whole = whole.into_iter().map(|scenario| (scenario, None));
    let large = large.into_iter().map(|scenario| (scenario, Some(time)));
    for (scenario, time) in whole.chain(large) {
        run(scenario, Bounds { time, threads })?;
    }
    Ok(())
}

/// Explores one scenario and prints its line.
fn run(scenario: Scenario, bounds: Bounds) -> Result<()> {
    let size = if bounds.time.is_some() { ", large" } else { "" };
    let replicas = scenario.replicas;
    let Report { scenario, states, unique_states, depth, is_complete, time, invariants, violation } =
        check(scenario, bounds);
    let (name, whole) = (format!("{scenario}{size}"), if is_complete { "yes" } else { "no" });
    let checked: Vec<&str> = invariants.iter().map(|invariant| invariant.name()).collect();
    let (checked, seconds) = (checked.join(", "), time.as_secs_f64());
    println!(
        "{name:<22} {replicas:>8} {states:>10} {unique_states:>10} {depth:>6} {whole:>8} {seconds:>8.1}  {checked}"
    );
    if let Some(violation) = &violation {
        println!("the invariant {:?} is violated after:", violation.invariant);
        violation.steps.iter().for_each(|step| println!("  {step}"));
    }
    ensure!(violation.is_none(), "the scenario {name:?} violates an invariant");
    Ok(())
}
