//! The real planner and executor in a world of chance: caches that lag, requests that fail with and without effect, a Slurm
//! that goes away, people who change their minds, a process that dies between any two writes. Every run is a function of its
//! seed, so one that fails can be looked at again: `SIMULATION_SEED=17 cargo test -p nodeset-controller simulation`.

mod chance;
mod laws;
mod process;
mod story;

use std::env::var;
use std::sync::atomic::{AtomicU64, Ordering};
use story::Story;

/// How many stories are told, unless `SIMULATION_SEEDS` says otherwise. CI tells many more, optimised:
/// `SIMULATION_SEEDS=2000 cargo test --profile simulation -p nodeset-controller simulation`.
const SEEDS: u64 = 25;
/// Turns with faults in each.
const TURNS: u32 = 60;

fn number(name: &str) -> Option<u64> {
    var(name).ok()?.parse().ok()
}

/// Tells one story to its end.
fn tell(seed: u64) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut story = Story::begin(seed);
        for _ in 0..TURNS {
            story.turn().await?;
        }
        story.end_well().await
    })
}

#[test]
fn no_chain_of_accidents_harms_a_job_and_all_end_well() {
    if let Some(seed) = number("SIMULATION_SEED") {
        // One story is told to be looked at: with all that the operator says of it.
        tracing_subscriber::fmt()
            .without_time()
            .with_max_level(tracing::Level::DEBUG)
            .with_test_writer()
            .init();
        tell(seed).unwrap_or_else(|failure| panic!("{failure}"));
        return;
    }
    let (seeds, next) = (number("SIMULATION_SEEDS").unwrap_or(SEEDS), AtomicU64::new(0));
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            let mut failures = vec![];
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return failures;
                }
                if let Err(failure) = tell(seed) {
                    failures.push(format!("seed {seed}: {failure}"));
                }
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let shown: Vec<_> = failures.iter().take(3).collect();
    assert!(failures.is_empty(), "{} of {seeds} stories ended badly:\n{shown:#?}", failures.len());
}
