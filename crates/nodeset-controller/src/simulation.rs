//! The real planner and executor with random faults: lagging caches, requests that fail with and without effect, a
//! Slurm outage, slurmds that register under another name, users who change the spec, cordon, suspend jobs or delete the
//! NodeSet in the foreground, a process that crashes between any two writes. Every run is a function of its seed, so a failed one can be reproduced: `SIMULATION_SEED=17 cargo test -p nodeset-controller simulation`.

mod invariants;
mod kubernetes;
mod process;
mod random;
mod scenario;
mod users;

use scenario::Scenario;
use std::env::var;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of scenarios, unless `SIMULATION_SEEDS` is set. CI runs many more, optimised:
/// `SIMULATION_SEEDS=2000 cargo test --profile simulation -p nodeset-controller simulation`.
const SEEDS: u64 = 25;
/// Steps with faults in each scenario.
const STEPS: u32 = 60;

fn number(name: &str) -> Option<u64> {
    var(name).ok()?.parse().ok()
}

/// Runs one scenario to its end.
fn run(seed: u64) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut scenario = Scenario::new(seed);
        for _ in 0..STEPS {
            scenario.step().await?;
        }
        scenario.converge().await
    })
}

#[test]
fn no_sequence_of_faults_kills_a_job_and_every_scenario_converges() {
    if let Some(seed) = number("SIMULATION_SEED") {
        // A single scenario is run for debugging: with the logs of the operator.
        tracing_subscriber::fmt()
            .without_time()
            .with_max_level(tracing::Level::DEBUG)
            .with_test_writer()
            .init();
        run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        return;
    }
    let (seeds, next) = (number("SIMULATION_SEEDS").unwrap_or(SEEDS), AtomicU64::new(0));
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let run_next = || {
            let mut failures = vec![];
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return failures;
                }
                if let Err(failure) = run(seed) {
                    failures.push(format!("seed {seed}: {failure}"));
                }
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_next)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let shown: Vec<_> = failures.iter().take(3).collect();
    assert!(failures.is_empty(), "{} of {seeds} scenarios failed:\n{shown:#?}", failures.len());
}
