//! Runs the worker pods of NodeSets, and keeps their state in Slurm and Kubernetes consistent.

mod build;
mod cache;
mod controller;
mod events;
mod execute;
#[cfg(test)]
mod fixture;
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

use clap::Parser;

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "nodeset-controller";

/// Runs slurmd worker pods for NodeSet resources.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Coordination backend for write batches: `embedded` for a single active replica.
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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let Expectations::Embedded = args.expectations;
    let conditions = args.propagated_node_conditions;
    operator_runtime::run(NAME, args.runtime, |runtime| controller::start(runtime, conditions)).await
}
