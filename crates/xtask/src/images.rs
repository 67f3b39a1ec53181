//! Slurm images built from Debian packages.

/// What can be done with images.
#[derive(clap::Subcommand)]
pub enum Command {}

/// Runs one image command.
pub fn run(command: &Command) -> anyhow::Result<()> {
    match *command {}
}
