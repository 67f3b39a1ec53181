//! A real local Kubernetes.

/// What can be done with a cluster.
#[derive(clap::Subcommand)]
pub enum Command {}

/// Runs one cluster command.
pub fn run(command: &Command) -> anyhow::Result<()> {
    match *command {}
}
