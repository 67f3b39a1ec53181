//! A cluster as the other commands of this program use it: by processes of this program, which can go into its
//! namespaces.

use super::layout::{Layout, Name};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One cluster by its name, existing or not.
pub struct LocalCluster {
    /// Its files.
    pub layout: Layout,
    xtask: PathBuf,
}

impl LocalCluster {
    /// The cluster of a name.
    pub fn new(name: &Name) -> Result<Self> {
        let xtask = std::env::current_exe().context("where is this program?")?;
        Ok(Self { layout: Layout::of(name)?, xtask })
    }

    /// The directory of this program, in which cargo puts all programs of the workspace.
    pub fn programs(&self) -> Result<&Path> {
        self.xtask.parent().context("a program in no directory")
    }

    /// Does something with the whole cluster, such as `up`. What it says is progress.
    pub fn manage(&self, verb: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.xtask);
        command.args(["cluster", verb, "--name", &self.layout.name.to_string()]).args(arguments);
        succeed(command.stdout(stderr()))
    }

    /// A command that can reach the cluster. It keeps its process id when it becomes `program`.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.xtask);
        command.args(["cluster", "exec", "--name", &self.layout.name.to_string(), "--"]).arg(program);
        command
    }

    /// Applies a manifest; objects that name no namespace go into the given one.
    pub fn apply(&self, namespace: &str, manifest: &str) -> Result<()> {
        let mut command = self.command("kubectl");
        command.args(["apply", "--server-side", "--namespace", namespace, "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(stderr()).spawn()?;
        child.stdin.take().context("no input to write to")?.write_all(manifest.as_bytes())?;
        let status = child.wait()?;
        ensure!(status.success(), "{command:?} ended with {status}");
        Ok(())
    }
}

/// Runs a command that has to succeed.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
