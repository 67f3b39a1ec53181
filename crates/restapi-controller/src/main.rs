//! Runs slurmrestd for Slurm clusters.

mod build;
mod controller;
mod execute;
mod observe;
mod plan;
mod status;

/// The binary's name, and the field manager of its writes.
const NAME: &str = "restapi-controller";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let about = "Runs slurmrestd for each RestApi resource";
    operator_runtime::run_with_common_flags(NAME, about, controller::start).await
}
