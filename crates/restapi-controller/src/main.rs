//! Runs slurmrestd for Slurm clusters.

mod build;
mod controller;
mod execute;
mod observe;
mod plan;
mod status;

use clap::Parser;

/// Runs slurmrestd for each RestApi resource.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    runtime: operator_runtime::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    operator_runtime::run("restapi-controller", args.runtime, controller::start).await
}
