//! The long version of the chaos test: many rounds of random faults with hundreds of pods on simulated nodes.

use crate::cluster::{LocalCluster, Profile, check_machine};
use crate::commands::{self, cargo, in_workspace};
use crate::progress::step;
use anyhow::Result;

/// Simulated nodes.
const NODES: &str = "30";
/// The suite with the test, and the test.
const SUITE: &str = "replicas";
const TEST: &str = "chaos";

/// Options of the chaos command.
#[derive(clap::Args)]
pub struct Args {
    /// Number of rounds. Each changes all NodeSets, injects faults and waits for the exact state.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Number of pods, over all NodeSets.
    #[arg(long, default_value_t = 300)]
    pods: u32,
    /// Faults per round.
    #[arg(long, default_value_t = 8)]
    faults: u32,
    /// Seed of the faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the cluster running, to inspect it.
    #[arg(long)]
    keep: bool,
}

/// Creates a cluster, runs the test in it and removes it.
pub fn run(args: &Args) -> Result<()> {
    check_machine(Profile::Scale)?;
    let cluster = LocalCluster::new(&TEST.parse()?)?;
    // All at once, since every selection of packages enables other features and so compiles most libraries again.
    step("build", || cargo(&["build", "--quiet", "--workspace", "--bins", "--test", SUITE]))?;
    cluster.manage("up", &["--profile", "scale", "--nodes", NODES])?;
    let mut test = cluster.command("cargo");
    in_workspace(&mut test);
    test.args(["test", "--offline", "--workspace", "--test", SUITE, "--", TEST, "--nocapture"]);
    test.env("CHAOS_ROUNDS", args.rounds.to_string())
        .env("CHAOS_PODS", args.pods.to_string())
        .env("CHAOS_FAULTS", args.faults.to_string())
        .env("CHAOS_SEED", args.seed.to_string());
    let outcome = commands::run(&mut test);
    if args.keep { outcome } else { outcome.and(cluster.manage("down", &[])) }
}
