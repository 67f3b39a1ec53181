//! Runs slurmdbd for Slurm clusters.

mod build;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod observe;
mod plan;
mod status;

/// The binary's name, and the field manager of its writes.
const NAME: &str = "accounting-controller";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let about = "Runs slurmdbd for each Accounting resource";
    operator_runtime::run_with_common_flags(NAME, about, controller::start).await
}
