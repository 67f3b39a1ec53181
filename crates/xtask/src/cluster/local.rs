//! Access to a cluster for other commands: through child processes of this program, which can enter the cluster's
//! namespaces.

use super::layout::{Layout, Name};
use crate::commands::run;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A cluster by name, which need not exist.
pub struct LocalCluster {
    /// Its files.
    pub layout: Layout,
    xtask: PathBuf,
}

impl LocalCluster {
    /// The cluster with this name.
    pub fn new(name: &Name) -> Result<Self> {
        let xtask = std::env::current_exe().context("finding the file of this program")?;
        Ok(Self { layout: Layout::of(name)?, xtask })
    }

    /// The directory of this program and of all other programs of the workspace.
    pub fn programs(&self) -> Result<&Path> {
        self.xtask.parent().context("the file of this program has no directory")
    }

    /// Runs a cluster command such as `up`. Its output goes to standard error, as progress.
    pub fn manage(&self, verb: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.xtask);
        command.args(["cluster", verb, "--name", &self.layout.name.to_string()]).args(arguments);
        run(command.stdout(stderr()))
    }

    /// Imports image archives into the container runtime of the node.
    pub fn import(&self, archives: &[PathBuf]) -> Result<()> {
        let archives: Vec<_> = archives.iter().map(|archive| archive.display().to_string()).collect();
        self.manage("import", &archives.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A command inside the cluster's network. Its process becomes `program` and keeps its id.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.xtask);
        command.args(["cluster", "exec", "--name", &self.layout.name.to_string(), "--"]).arg(program);
        command
    }

    /// A controller inside the cluster's network, on free ports.
    pub fn controller(&self, file: &Path) -> Command {
        let mut command = self.command(file);
        command.args(["--health-addr", "127.0.0.1:0", "--metrics-addr", "0"]);
        command
    }

    /// Applies a manifest; the namespace is that of objects without one.
    pub fn apply(&self, namespace: &str, manifest: &str) -> Result<()> {
        let mut command = self.command("kubectl");
        command.args(["apply", "--server-side", "--namespace", namespace, "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(stderr()).spawn()?;
        child.stdin.take().context("kubectl has no standard input")?.write_all(manifest.as_bytes())?;
        let status = child.wait()?;
        ensure!(status.success(), "{command:?} ended with {status}");
        Ok(())
    }
}
