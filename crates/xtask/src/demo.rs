//! The whole thing on one machine: a Kubernetes, the definitions, and a Slurm cluster described by all six kinds.

use crate::WORKSPACE;
use crate::progress::step;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const CLUSTER: &str = "demo";
const NAMESPACE: &str = "slurm";
const OBJECTS: &str = include_str!("../demo/cluster.yaml");

/// Brings everything up, shows it and leaves it running.
pub fn run() -> Result<()> {
    let demo = Demo { xtask: std::env::current_exe().context("where is this program?")? };
    demo.cluster("up", &["--profile", "node"])?;
    step("install the definitions", || {
        let chart = format!("{WORKSPACE}/charts/slurm-operator-crds");
        demo.inside("helm", &["upgrade", "--install", "slurm-operator-crds", &chart])
    })?;
    step("describe a Slurm cluster", || {
        demo.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {NAMESPACE} }}\n"))?;
        demo.apply(OBJECTS)
    })?;
    demo.inside("kubectl", &["get", "--namespace", NAMESPACE, KINDS])?;
    println!(
        "\nLook around: cargo xtask cluster exec --name {CLUSTER} -- kubectl get nodes,pods --all-namespaces"
    );
    println!("Remove it:   cargo xtask cluster down --name {CLUSTER}");
    Ok(())
}

const KINDS: &str = "controllers,accountings,restapis,loginsets,nodesets,tokens";

/// The cluster of the demo.
struct Demo {
    xtask: PathBuf,
}

impl Demo {
    fn cluster(&self, verb: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.xtask);
        succeed(command.args(["cluster", verb, "--name", CLUSTER]).args(arguments))
    }

    /// Runs a command where the cluster can be reached.
    fn inside(&self, program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
        succeed(self.command(program).args(arguments))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.xtask);
        command.args(["cluster", "exec", "--name", CLUSTER, "--", program]);
        command
    }

    fn apply(&self, manifest: &str) -> Result<()> {
        let mut command = self.command("kubectl");
        command.args(["apply", "--server-side", "--namespace", NAMESPACE, "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input to write to")?.write_all(manifest.as_bytes())?;
        let status = child.wait()?;
        anyhow::ensure!(status.success(), "{command:?} ended with {status}");
        Ok(())
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
