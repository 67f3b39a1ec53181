//! Runs the worker pods of NodeSets, and keeps their state in Slurm and Kubernetes consistent.

mod build;
mod cache;
mod controller;
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

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "nodeset-controller";

/// Runs slurmd worker pods for NodeSet resources.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Coordination backend for write batches: `embedded` for a single active replica, which is always elected by the Lease.
    #[arg(long, env = "EXPECTATIONS", value_enum, default_value_t = Expectations::Embedded)]
    expectations: Expectations,

    /// Types of node conditions, separated by commas, whose messages become part of the Slurm drain reason of a cordoned node.
    #[arg(long, env = "PROPAGATED_NODE_CONDITIONS", value_delimiter = ',')]
    propagated_node_conditions: Vec<String>,

    #[command(flatten)]
    runtime: operator_runtime::Args,
}

/// Coordination backend for write batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Expectations {
    /// In this process: no other replica may be active.
    Embedded,
}

impl Args {
    /// Has one active process elected: two processes with embedded expectations would grant batches side by side.
    fn require_election(&mut self) -> Result<(), clap::Error> {
        let Expectations::Embedded = self.expectations;
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
    let conditions = args.propagated_node_conditions;
    operator_runtime::run(NAME, args.runtime, |runtime| controller::start(runtime, conditions)).await
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
    fn embedded_expectations_elect_always(#[case] flags: &[&str], #[case] elected: Option<bool>) {
        let mut args = Args::parse_from([&["nodeset-controller"], flags].concat());
        match (args.require_election(), elected) {
            (Ok(()), Some(_)) => assert_eq!(args.runtime.leader_elect, elected),
            (Err(error), None) => assert!(error.to_string().contains("--leader-elect=false"), "{error}"),
            (result, _) => panic!("{result:?}"),
        }
    }
}
