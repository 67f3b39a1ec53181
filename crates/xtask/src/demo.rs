//! The whole thing on one machine: a Kubernetes, the definitions, and a Slurm cluster described by all six kinds.

use crate::WORKSPACE;
use crate::cluster::end_programs;
use crate::progress::step;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const CLUSTER: &str = "demo";
const NAMESPACE: &str = "slurm";
const OBJECTS: &str = include_str!("../demo/cluster.yaml");

/// The binaries of the operator, one for each kind that has one.
const CONTROLLERS: [&str; 5] = [
    "controller-controller",
    "accounting-controller",
    "restapi-controller",
    "loginset-controller",
    "token-controller",
];
/// The objects that are waited for.
const AWAITED: [&str; 5] =
    ["controller/slurm", "accounting/slurm", "restapi/slurm", "loginset/login", "token/admin"];

/// Brings everything up, shows it and leaves it running.
pub fn run() -> Result<()> {
    let demo = Demo { xtask: std::env::current_exe().context("where is this program?")? };
    step("build the operator", || {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--workspace", "--bins"]).current_dir(WORKSPACE);
        succeed(&mut cargo)
    })?;
    demo.cluster("up", &["--profile", "node"])?;
    step("install the definitions", || {
        let chart = format!("{WORKSPACE}/charts/slurm-operator-crds");
        demo.inside("helm", &["upgrade", "--install", "slurm-operator-crds", &chart])
    })?;
    step("start the operator", || demo.start_controllers())?;
    step("describe a Slurm cluster", || {
        demo.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {NAMESPACE} }}\n"))?;
        demo.apply(OBJECTS)
    })?;
    step("wait for the control plane", || {
        let wait = ["wait", "--namespace", NAMESPACE, "--for=condition=Ready", "--timeout=300s"];
        demo.inside("kubectl", &[&wait[..], &AWAITED].concat())
    })?;
    demo.inside("kubectl", &["get", "--namespace", NAMESPACE, KINDS])?;
    demo.show(&["slurm-controller-0", "--container", "slurmctld", "--", "scontrol", "ping"])?;
    demo.show(&["deployment/login", "--container", "login", "--", "sinfo"])?;
    println!(
        "\nLook around: cargo xtask cluster exec --name {CLUSTER} -- kubectl get pods --namespace {NAMESPACE}"
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

    /// Starts the binaries anew; they end with the cluster.
    fn start_controllers(&self) -> Result<()> {
        let programs = self.xtask.parent().context("a program in no directory")?;
        end_programs(&CLUSTER.parse()?, &CONTROLLERS)?;
        for controller in CONTROLLERS {
            let log = File::create(programs.join(format!("demo-{controller}.log")))?;
            self.command(programs.join(controller).to_str().context("a path that is no text")?)
                .args(["--health-addr", "127.0.0.1:0", "--metrics-addr", "0"])
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .process_group(0)
                .spawn()
                .with_context(|| format!("starting {controller}"))?;
        }
        Ok(())
    }

    /// Shows what a command in a pod says.
    fn show(&self, arguments: &[&str]) -> Result<()> {
        let command = arguments.iter().skip_while(|word| **word != "--").skip(1);
        println!("\n$ {}", command.copied().collect::<Vec<_>>().join(" "));
        self.inside("kubectl", &[&["exec", "--namespace", NAMESPACE], arguments].concat())
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
