//! Runs login pods of Slurm clusters.

mod build;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod host_keys;
mod observe;
mod plan;
mod status;

/// The binary's name, and the field manager of its writes.
const NAME: &str = "loginset-controller";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let about = "Runs pods to log in to for each LoginSet resource";
    operator_runtime::run_with_common_flags(NAME, about, controller::start).await
}
