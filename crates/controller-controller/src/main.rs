//! Runs slurmctld for Slurm clusters.

mod active;
mod build;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod observe;
mod plan;
mod status;

use clap::Parser;
use std::time::Duration;

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "controller-controller";

/// Runs slurmctld for each Controller resource.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Seconds that a changed Slurm configuration waits for further changes before it takes effect.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=60))]
    reconfigure_delay: u64,
    #[command(flatten)]
    runtime: operator_runtime::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let delay = Duration::from_secs(args.reconfigure_delay);
    operator_runtime::run(NAME, args.runtime, move |runtime| controller::start(runtime, delay)).await
}
