//! Runs worker pods that Slurm and Kubernetes agree on.
#![allow(dead_code, unused_imports, reason = "parts that are not connected yet")]

mod build;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod observe;
mod plan;
mod slurm;
mod status;
mod worker;

use clap::Parser;

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "nodeset-controller";

/// Runs slurmd in pods for each NodeSet resource.
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
