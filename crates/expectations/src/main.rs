//! The expectations service: coordinates write batches of several active nodeset-controller replicas over gRPC.

mod service;
mod status;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use operator_runtime::ProcessArgs;

/// The binary's name, and that of its Lease.
const NAME: &str = "expectations";

/// Coordinates the write batches of nodeset-controller replicas. Without a subcommand the service runs.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    service: service::Args,

    #[command(flatten)]
    process: ProcessArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Show leader, members, open batches and waiting NodeSets of a running service.
    Status(status::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.command {
        Some(Command::Status(args)) => status::print(args).await,
        None => {
            if let Err(error) = args.service.check() {
                Args::command().error(ErrorKind::ValueValidation, format!("{error:#}")).exit();
            }
            let start = |runtime| service::start(runtime, args.service);
            Box::pin(operator_runtime::run(NAME, args.process.into(), start)).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, CommandFactory, Parser};

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn service_needs_the_accounts_that_may_call_it() {
        let error = Args::try_parse_from(["expectations"]).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("--service-accounts")), "{error:?}");
        assert!(Args::try_parse_from(["expectations", "--service-accounts=slinky/nodesets"]).is_ok());
        assert!(Args::try_parse_from(["expectations", "status"]).is_ok());
    }
}
