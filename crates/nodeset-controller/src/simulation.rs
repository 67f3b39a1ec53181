//! The operator with random faults: lagging caches, requests that fail with and without effect, a Slurm outage, slurmds that
//! register under another name, users who change the spec, cordon, suspend jobs or delete the NodeSet in the foreground.
//!
//! It runs in two ways. As one process with the expectations service inside, which crashes between any two writes. And as
//! three replicas that share two Slurm clusters by way of an expectations service: replicas crash, shut down, and are
//! stopped for minutes and go on where they were; heartbeats fail to arrive; the service crashes and restarts; messages
//! to it are lost, late and repeated. Everything that ships runs, except for watches and for kube's queue: reconciles,
//! background runs, the handling of ownership, the executor, and the machine of the service.
//!
//! Every run is a function of its seed, so a failed one can be reproduced:
//! `SIMULATION_SEED=17 cargo test -p nodeset-controller simulation::three_replicas`.

mod gate;
mod invariants;
mod kubernetes;
mod ledger;
mod process;
mod random;
mod scenario;
mod service;
mod site;
mod transport;
mod users;
mod world;

use scenario::{Deployment, Scenario};
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
fn run(seed: u64, deployment: Deployment) -> Result<(), String> {
    operator_runtime::testing::seed_jitter(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut scenario = Scenario::new(seed, deployment);
        for _ in 0..STEPS {
            scenario.step().await?;
        }
        scenario.converge().await
    })
}

/// Runs the scenario that `SIMULATION_SEED` names, or many.
fn run_all(deployment: Deployment, seeds: u64) {
    if let Some(seed) = number("SIMULATION_SEED") {
        // A single scenario is run for debugging: with the logs of the operator.
        let _ = tracing_subscriber::fmt()
            .without_time()
            .with_max_level(tracing::Level::DEBUG)
            .with_test_writer()
            .try_init();
        run(seed, deployment).unwrap_or_else(|failure| panic!("{failure}"));
        return;
    }
    let next = AtomicU64::new(0);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let run_next = || {
            let mut failures = vec![];
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return failures;
                }
                if let Err(failure) = run(seed, deployment) {
                    failures.push(format!("seed {seed}: {failure}"));
                }
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run_next)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let first_lines: Vec<_> = failures.iter().filter_map(|failure| failure.lines().next()).collect();
    let shown: Vec<_> = failures.iter().take(1).collect();
    assert!(failures.is_empty(), "{} of {seeds} failed:\n{first_lines:#?}\n{shown:#?}", failures.len());
}

#[test]
fn one_replica_harms_no_job_and_every_scenario_converges() {
    run_all(Deployment::Embedded, number("SIMULATION_SEEDS").unwrap_or(SEEDS));
}

#[test]
fn three_replicas_never_collide_and_every_scenario_converges() {
    run_all(Deployment::ThreeReplicas, number("SIMULATION_SEEDS").unwrap_or(SEEDS));
}
