//! The demo: a local Kubernetes cluster with the operator and a Slurm cluster of all six kinds.

use crate::WORKSPACE;
use crate::cluster::{LocalCluster, end_programs, run_command};
use crate::progress::step;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const CLUSTER: &str = "demo";
const NAMESPACE: &str = "slurm";
const OBJECTS: &str = include_str!("../demo/cluster.yaml");

/// The binaries of the operator, one per kind.
const CONTROLLERS: [&str; 6] = [
    "controller-controller",
    "accounting-controller",
    "restapi-controller",
    "loginset-controller",
    "token-controller",
    "nodeset-controller",
];
/// The objects that have to become ready.
const OBJECTS_TO_WAIT_FOR: [&str; 6] = [
    "controller/slurm",
    "accounting/slurm",
    "restapi/slurm",
    "loginset/login",
    "token/admin",
    "nodeset/worker",
];

/// Starts the cluster, shows it and keeps it running.
pub fn run() -> Result<()> {
    let demo = Demo(LocalCluster::new(&CLUSTER.parse()?)?);
    step("build the operator", || {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--workspace", "--bins"]).current_dir(WORKSPACE);
        run_command(&mut cargo)
    })?;
    demo.0.manage("up", &["--profile", "node"])?;
    step("install the CRDs", || {
        let chart = format!("{WORKSPACE}/charts/slurm-operator-crds");
        demo.run("helm", &["upgrade", "--install", "slurm-operator-crds", &chart])
    })?;
    step("start the operator", || demo.start_controllers())?;
    step("apply a Slurm cluster", || {
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {NAMESPACE} }}\n");
        demo.0.apply(NAMESPACE, &namespace)?;
        demo.0.apply(NAMESPACE, OBJECTS)
    })?;
    step("wait for the Slurm cluster", || {
        let wait = ["wait", "--namespace", NAMESPACE, "--for=condition=Ready", "--timeout=300s"];
        demo.run("kubectl", &[&wait[..], &OBJECTS_TO_WAIT_FOR].concat())
    })?;
    demo.run("kubectl", &["get", "--namespace", NAMESPACE, KINDS])?;
    demo.show(&["slurm-controller-0", "--container", "slurmctld", "--", "scontrol", "ping"])?;
    demo.show(&["deployment/login", "--container", "login", "--", "sinfo"])?;
    demo.show(&["deployment/login", "--container", "login", "--", "srun", "-N2", "hostname"])?;
    println!(
        "\nLook around: cargo xtask cluster exec --name {CLUSTER} -- kubectl get pods --namespace {NAMESPACE}"
    );
    println!("Remove it:   cargo xtask cluster down --name {CLUSTER}");
    Ok(())
}

const KINDS: &str = "controllers,accountings,restapis,loginsets,nodesets,tokens";

/// The cluster of the demo.
struct Demo(LocalCluster);

impl Demo {
    /// Runs a command inside the cluster's network.
    fn run(&self, program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
        run_command(self.0.command(program).args(arguments))
    }

    /// Restarts the controllers, which end with the cluster.
    fn start_controllers(&self) -> Result<()> {
        let programs = self.0.programs()?;
        end_programs(&self.0.layout.name, &CONTROLLERS)?;
        for controller in CONTROLLERS {
            let log = File::create(programs.join(format!("demo-{controller}.log")))?;
            self.0
                .command(programs.join(controller))
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

    /// Prints a command and its output in a pod.
    fn show(&self, arguments: &[&str]) -> Result<()> {
        let command = arguments.iter().skip_while(|word| **word != "--").skip(1);
        println!("\n$ {}", command.copied().collect::<Vec<_>>().join(" "));
        self.run("kubectl", &[&["exec", "--namespace", NAMESPACE], arguments].concat())
    }
}
