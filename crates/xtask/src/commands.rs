//! Child processes.

use crate::WORKSPACE;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::process::{Command, Stdio};

/// Runs a command; fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Runs cargo in the root of the repository.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    run(Command::new("cargo").args(arguments).current_dir(WORKSPACE))
}

/// Lets a command write all its output to a log and read nothing.
pub fn log_to(command: &mut Command, log: File) -> Result<&mut Command> {
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))
}
