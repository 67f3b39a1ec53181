//! The development commands of this project: local clusters, images, demo, benchmark, model checker, tests.

mod bench;
mod cache;
mod chaos;
mod charts;
mod cluster;
mod commands;
mod demo;
mod images;
mod model;
mod packages;
mod progress;
mod suite;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The root of the repository.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Development commands: local clusters, images, demo, benchmark, model checker, tests.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start, use and remove local Kubernetes clusters.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Build Slurm images from Debian packages.
    #[command(subcommand)]
    Images(images::Command),
    /// Start a local Kubernetes cluster with a Slurm cluster in it.
    Demo,
    /// Test the Helm charts.
    #[command(subcommand)]
    Charts(charts::Arguments),
    /// Measure how fast, and at what cost, the operator scales NodeSets on simulated nodes.
    Bench(bench::Args),
    /// Kill and pause processes of the operator at random while it scales NodeSets on simulated nodes.
    Chaos(chaos::Args),
    /// Check the expectations protocol in every state that small clusters can reach.
    Model(model::Args),
    /// Run all checks and tests that CI runs.
    Test(suite::Args),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Cluster(command) => cluster::run(&command),
        Command::Images(command) => images::run(&command),
        Command::Demo => demo::run(),
        Command::Charts(arguments) => charts::run(&arguments),
        Command::Bench(args) => bench::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Test(args) => suite::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
