//! The demo: a local Kubernetes cluster with the operator and a Slurm cluster of all six kinds, installed with Helm as on any
//! other cluster, from images that are built from the Dockerfiles of this repository.

use crate::WORKSPACE;
use crate::cluster::{LocalCluster, Profile, check_machine};
use crate::commands;
use crate::images::REGISTRY;
use crate::images::operator::{self, OperatorImages};
use crate::progress::step;
use anyhow::Result;
use std::ffi::OsStr;
use std::io::stderr;

const CLUSTER: &str = "demo";
/// The namespace of the operator.
const OPERATOR: &str = "slinky";
/// The namespace of the Slurm cluster.
const SLURM: &str = "slurm";
/// The database for slurmdbd.
const DATABASE: &str = include_str!("../demo/database.yaml");
/// A pod with the commands of Slurm.
const LOGIN: [&str; 4] = ["deployment/slurm-login-slinky", "--container", "login", "--"];

/// Starts the cluster, shows it and keeps it running.
pub fn run() -> Result<()> {
    check_machine(Profile::Node)?;
    step("demo", || {
        let images = OperatorImages::build(operator::Profile::Quick)?;
        let cluster = LocalCluster::new(&CLUSTER.parse()?)?;
        let demo = Demo { cluster };
        demo.start(&images)?;
        demo.show()
    })
}

struct Demo {
    cluster: LocalCluster,
}

impl Demo {
    fn start(&self, images: &OperatorImages) -> Result<()> {
        self.cluster.manage("up", &["--profile", "node"])?;
        self.cluster.import(&images.archives())?;
        step("install the custom resource definitions", || {
            self.install("slurm-operator-crds", "slurm-operator/charts/slurm-operator-crds", OPERATOR, &[])
        })?;
        step("install the operator", || {
            let labels = ["label", "--overwrite", "namespace", OPERATOR];
            let label = "pod-security.kubernetes.io/enforce=restricted";
            self.run("kubectl", &[&labels[..], &[label]].concat())?;
            let registry = format!("--set=global.imageRegistry={REGISTRY}");
            let tag = format!("--set-string=global.image.tag={}", images.tag);
            self.install("slurm-operator", "slurm-operator", OPERATOR, &[&registry, &tag])
        })?;
        step("start MariaDB", || {
            let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {SLURM} }}\n");
            self.cluster.apply(SLURM, &namespace)?;
            self.cluster.apply(SLURM, DATABASE)
        })?;
        step("install a Slurm cluster", || {
            let values = format!("--values={WORKSPACE}/crates/xtask/demo/slurm.yaml");
            self.install("slurm", "slurm", SLURM, &[&values])
        })
    }

    /// Installs a chart, and waits until everything in it is ready.
    fn install(&self, release: &str, chart: &str, namespace: &str, values: &[&str]) -> Result<()> {
        let chart = format!("{WORKSPACE}/charts/{chart}");
        let install =
            ["upgrade", "--install", release, &chart, "--namespace", namespace, "--create-namespace"];
        let wait = ["--wait", "--timeout=5m", "--hide-notes"];
        self.run("helm", &[&install[..], &wait, values].concat())
    }

    /// Prints what was installed, and runs jobs.
    fn show(&self) -> Result<()> {
        self.shell("kubectl", &["get", "pods", "--namespace", OPERATOR])?;
        let kinds = "controllers,accountings,restapis,loginsets,nodesets,tokens";
        self.shell("kubectl", &["get", "--namespace", SLURM, kinds])?;
        self.shell_in_slurm(&["sinfo"])?;
        self.shell_in_slurm(&["srun", "-N3", "hostname"])?;
        self.shell_in_slurm(&["sbatch", "--wait", "--array=1-3", "--output=/dev/null", "--wrap", "sleep 1"])?;
        self.shell_in_slurm(&["sacct", "--allocations", "--format=JobID,JobName,NodeList,State,ExitCode"])?;
        let exec = format!("cargo xtask cluster exec --name {CLUSTER} --");
        println!("\nGo on:");
        println!("  {exec} kubectl get pods --namespace {SLURM}");
        println!("  {exec} kubectl exec -it --namespace {SLURM} {} -- bash", LOGIN[0]);
        println!("  {exec} kubectl scale --namespace {SLURM} nodesets/slurm-worker-slinky --replicas=5");
        println!("  {exec} helm upgrade slurm charts/slurm --namespace {SLURM} --reuse-values --set ...");
        println!("Remove it:\n  cargo xtask cluster down --name {CLUSTER}");
        Ok(())
    }

    /// Prints a command and its output.
    fn shell(&self, program: &str, arguments: &[&str]) -> Result<()> {
        println!("\n$ {program} {}", arguments.join(" "));
        commands::run(self.cluster.command(program).args(arguments))
    }

    /// Prints a command and its output in the login pod.
    fn shell_in_slurm(&self, command: &[&str]) -> Result<()> {
        println!("\nlogin$ {}", command.join(" "));
        let exec = ["exec", "--namespace", SLURM];
        commands::run(self.cluster.command("kubectl").args([&exec[..], &LOGIN, command].concat()))
    }

    /// Runs a command inside the cluster's network; its output is progress.
    fn run(&self, program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
        commands::run(self.cluster.command(program).args(arguments).stdout(stderr()))
    }
}
