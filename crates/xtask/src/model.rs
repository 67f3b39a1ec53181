//! The model checker of the expectations protocol.

use crate::commands::cargo;
use anyhow::Result;

/// Options of the model command.
#[derive(clap::Args)]
pub struct Args {
    /// Time for the scenarios that are too large to be explored whole, in seconds.
    #[arg(long, default_value_t = 180)]
    seconds: u32,
}

/// Builds and runs the model checker, which is optimized in every profile.
pub fn run(args: &Args) -> Result<()> {
    let seconds = args.seconds.to_string();
    cargo(&["run", "--quiet", "--package", "expectations-model", "--", "--seconds", &seconds])
}
