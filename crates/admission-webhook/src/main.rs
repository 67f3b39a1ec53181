//! The admission webhook: validates the custom resources, protects running jobs from evictions, and gives worker pods the
//! topology of their Kubernetes node before their containers start.
//!
//! The operator works without it: controllers check the same rules, and report in conditions what the webhook refuses.

mod binding;
mod check;
mod eviction;
mod metrics;
mod review;
mod rules;
mod server;
mod slurm;
mod validation;
mod verdict;

use clap::{Parser, Subcommand};
use operator_runtime::ProcessArgs;

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "admission-webhook";

/// Validates Slurm resources and protects running jobs from evictions. Without a subcommand the webhook runs.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    server: server::Args,

    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Wait until the API server calls the webhook and the webhook denies an invalid NodeSet. Nothing is stored.
    Check(check::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.command {
        Some(Command::Check(check)) => check::run(check).await,
        None => {
            let start = |runtime| server::start(runtime, args.server);
            Box::pin(operator_runtime::run(NAME, args.process.into(), start)).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::CommandFactory;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }
}
