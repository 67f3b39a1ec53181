//! Keeps JSON Web Tokens for Slurm users in Secrets and renews them before they expire.

mod build;
mod controller;
mod execute;
mod expiry;
mod metrics;
mod observe;
mod plan;
mod status;
mod validate;

/// The binary's name, and the field manager of its writes.
const NAME: &str = "token-controller";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let about = "Issues a JSON Web Token for each Token resource and renews it before it expires";
    operator_runtime::run_with_common_flags(NAME, about, controller::start).await
}
