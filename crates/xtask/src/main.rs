//! The commands of this project: local cluster, demo, tests.

mod bench;
mod cache;
mod cluster;
mod demo;
mod images;
mod packages;
mod progress;
mod suite;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The root of the repository.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Everything this project does to itself: a local cluster, its images, the tests.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A real local Kubernetes: up, exec, down.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Slurm images built from Debian packages.
    #[command(subcommand)]
    Images(images::Command),
    /// A Kubernetes with a Slurm cluster in it, on this machine.
    Demo,
    /// How fast the operator scales NodeSets, and what that costs, on simulated nodes.
    Bench(bench::Args),
    /// Format, lints, unit, conformance and API server tests, as CI runs them.
    Test(suite::Args),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Cluster(command) => cluster::run(&command),
        Command::Images(command) => images::run(&command),
        Command::Demo => demo::run(),
        Command::Bench(args) => bench::run(&args),
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
