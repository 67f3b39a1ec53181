//! Keeps JSON Web Tokens for Slurm users in Secrets, renewed in time.

mod build;
mod controller;
mod execute;
mod observe;
mod plan;
mod status;
mod validate;

use clap::Parser;

/// Issues a JSON Web Token for each Token resource, and renews it in time.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    runtime: operator_runtime::Args,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    operator_runtime::run("token-controller", args.runtime, controller::start).await
}
