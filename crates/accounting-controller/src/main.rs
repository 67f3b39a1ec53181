//! Runs slurmdbd for Slurm clusters.

mod build;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod observe;
mod plan;
mod status;

use clap::Parser;

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "accounting-controller";

/// Runs slurmdbd for each Accounting resource.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    runtime: operator_runtime::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    operator_runtime::run(NAME, args.runtime, controller::start).await
}
