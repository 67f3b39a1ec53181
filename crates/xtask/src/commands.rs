//! Child processes.

use crate::WORKSPACE;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::process::{Command, Stdio};

/// Runs a command; fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// Standard output of a command; if it fails, an error with its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("running {}", program.display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs cargo in the root of the repository.
pub fn cargo(arguments: &[&str]) -> Result<()> {
    run(in_workspace(&mut Command::new("cargo")).args(arguments))
}

/// Lets a command that runs cargo work in the root of the repository, without the variables that cargo set for this process:
/// some build scripts depend on them, so that a developer's own cargo would build their crates again.
pub fn in_workspace(command: &mut Command) -> &mut Command {
    let is_of_package = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars().map(|(name, _)| name).filter(is_of_package) {
        command.env_remove(name);
    }
    command.current_dir(WORKSPACE)
}

/// Lets a command write all its output to a log and read nothing.
pub fn log_to(command: &mut Command, log: File) -> Result<&mut Command> {
    Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))
}
