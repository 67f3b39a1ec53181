//! Runs worker pods that Slurm and Kubernetes agree on.

mod announce;
mod build;
mod cache;
mod children;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod node_facts;
mod observe;
mod plan;
mod pod_backoff;
#[cfg(test)]
mod simulation;
mod slurm;
mod status;
mod work;
mod worker;
mod world;

use clap::Parser;

/// The binary's name, and the field manager under which it writes.
const NAME: &str = "nodeset-controller";

/// Runs slurmd in pods for each NodeSet resource.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Who keeps batches of writes apart: `embedded` for one active replica.
    #[arg(long, env = "EXPECTATIONS", value_enum, default_value_t = Expectations::Embedded)]
    expectations: Expectations,

    /// Types of conditions of Kubernetes nodes, separated by commas, whose texts explain a cordon in Slurm.
    #[arg(long, env = "PROPAGATED_NODE_CONDITIONS", value_delimiter = ',')]
    propagated_node_conditions: Vec<String>,

    #[command(flatten)]
    runtime: operator_runtime::Args,
}

/// Who keeps batches of writes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Expectations {
    /// This process itself: no other may be active.
    Embedded,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let Expectations::Embedded = args.expectations;
    let conditions = args.propagated_node_conditions;
    operator_runtime::run(NAME, args.runtime, |runtime| controller::start(runtime, conditions)).await
}
