//! The demo: a local Kubernetes cluster with the operator and a Slurm cluster of all six kinds.

use crate::WORKSPACE;
use crate::cluster::{LocalCluster, Profile, check_machine, end_programs};
use crate::commands::{self, cargo, log_to};
use crate::progress::step;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;

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
    check_machine(Profile::Node)?;
    let cluster = &LocalCluster::new(&CLUSTER.parse()?)?;
    step("build the operator", || cargo(&["build", "--quiet", "--workspace", "--bins"]))?;
    cluster.manage("up", &["--profile", "node"])?;
    step("install the CRDs", || {
        let chart = format!("{WORKSPACE}/charts/slurm-operator-crds");
        run_in(cluster, "helm", &["upgrade", "--install", "slurm-operator-crds", &chart])
    })?;
    step("start the operator", || start_controllers(cluster))?;
    step("apply a Slurm cluster", || {
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {NAMESPACE} }}\n");
        cluster.apply(NAMESPACE, &namespace)?;
        cluster.apply(NAMESPACE, OBJECTS)
    })?;
    step("wait for the Slurm cluster", || {
        let wait = ["wait", "--namespace", NAMESPACE, "--for=condition=Ready", "--timeout=300s"];
        run_in(cluster, "kubectl", &[&wait[..], &OBJECTS_TO_WAIT_FOR].concat())
    })?;
    run_in(cluster, "kubectl", &["get", "--namespace", NAMESPACE, KINDS])?;
    show(cluster, &["slurm-controller-0", "--container", "slurmctld", "--", "scontrol", "ping"])?;
    show(cluster, &["deployment/login", "--container", "login", "--", "sinfo"])?;
    show(cluster, &["deployment/login", "--container", "login", "--", "srun", "-N2", "hostname"])?;
    println!(
        "\nLook around: cargo xtask cluster exec --name {CLUSTER} -- kubectl get pods --namespace {NAMESPACE}"
    );
    println!("Remove it:   cargo xtask cluster down --name {CLUSTER}");
    Ok(())
}

const KINDS: &str = "controllers,accountings,restapis,loginsets,nodesets,tokens";

/// Runs a command inside the cluster's network.
fn run_in(cluster: &LocalCluster, program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
    commands::run(cluster.command(program).args(arguments))
}

/// Restarts the controllers, which end with the cluster.
fn start_controllers(cluster: &LocalCluster) -> Result<()> {
    let programs = cluster.programs()?;
    end_programs(&cluster.layout.name, &CONTROLLERS)?;
    for controller in CONTROLLERS {
        let log = File::create(programs.join(format!("demo-{controller}.log")))?;
        log_to(&mut cluster.controller(&programs.join(controller)), log)?
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {controller}"))?;
    }
    Ok(())
}

/// Prints a command and its output in a pod.
fn show(cluster: &LocalCluster, arguments: &[&str]) -> Result<()> {
    let command = arguments.iter().skip_while(|word| **word != "--").skip(1);
    println!("\n$ {}", command.copied().collect::<Vec<_>>().join(" "));
    run_in(cluster, "kubectl", &[&["exec", "--namespace", NAMESPACE], arguments].concat())
}
