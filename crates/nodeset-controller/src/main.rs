//! Runs the worker pods of NodeSets, and keeps their state in Slurm and Kubernetes consistent.

mod build;
mod cache;
mod controller;
mod coordination;
mod events;
mod execute;
#[cfg(test)]
mod fixture;
mod mirror_runner;
mod node_facts;
mod observe;
mod plan;
mod pod_backoff;
mod runner;
#[cfg(test)]
mod simulation;
mod slurm;
mod status;
mod timing;
mod worker;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use coordination::{Backend, Credentials};

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "nodeset-controller";

/// Runs slurmd worker pods for NodeSet resources.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Coordination backend for write batches: `embedded` for a single active replica, which is always elected by the Lease,
    /// or the URL of the expectations service, `https://HOST:PORT`, for any number of active replicas. Several URLs are
    /// separated by commas.
    #[arg(long, env = "EXPECTATIONS", default_value = "embedded")]
    expectations: Backend,

    #[command(flatten)]
    credentials: Credentials,

    /// Types of node conditions, separated by commas, whose messages become part of the Slurm drain reason of a cordoned node.
    #[arg(long, env = "PROPAGATED_NODE_CONDITIONS", value_delimiter = ',')]
    propagated_node_conditions: Vec<String>,

    #[command(flatten)]
    runtime: operator_runtime::Args,
}

impl Args {
    /// Has one active process elected: two processes with embedded expectations would grant batches side by side.
    fn require_election(&mut self) -> Result<(), clap::Error> {
        if self.expectations != Backend::Embedded {
            return Ok(());
        }
        if self.runtime.leader_elect == Some(false) {
            let message = "--expectations=embedded needs an election: remove --leader-elect=false";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, message));
        }
        self.runtime.leader_elect = Some(true);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    args.require_election().unwrap_or_else(|error| error.exit());
    let Args { expectations, credentials, propagated_node_conditions: conditions, runtime } = args;
    let start = |runtime| controller::start(runtime, expectations, credentials, conditions);
    operator_runtime::run(NAME, runtime, start).await
}

#[cfg(test)]
mod tests {
    use super::{Args, CommandFactory, Parser};
    use rstest::rstest;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[rstest]
    #[case::by_default(&[], Some(true))]
    #[case::embedded(&["--expectations=embedded"], Some(true))]
    #[case::asked_for(&["--leader-elect"], Some(true))]
    #[case::forbidden(&["--leader-elect=false"], None)]
    #[case::service(&["--expectations=https://expectations:8443"], Some(false))]
    #[case::service_with_election(&["--expectations=https://expectations:8443", "--leader-elect"], Some(true))]
    fn embedded_expectations_elect_always(#[case] flags: &[&str], #[case] elected: Option<bool>) {
        let mut args = Args::parse_from([&["nodeset-controller"], flags].concat());
        match (args.require_election(), elected) {
            (Ok(()), Some(elected)) => assert_eq!(args.runtime.leader_elect.unwrap_or_default(), elected),
            (Err(error), None) => assert!(error.to_string().contains("--leader-elect=false"), "{error}"),
            (result, _) => panic!("{result:?}"),
        }
    }
}
