//! How fast an operator brings NodeSets to their size and back, and what that costs, on simulated nodes.

mod api;
mod audit;
mod background;
mod measurement;
mod observer;
mod report;
mod subject;
mod usage;
mod world;

use crate::WORKSPACE;
use crate::cluster::{LocalCluster, Name, succeed};
use crate::progress::step;
use anyhow::{Result, ensure};
use measurement::Measurement;
use serde_json::{Value, json};
use std::fs;
use std::io::stderr;
use std::path::{PathBuf, absolute};
use std::process::Command;
use subject::{NAMESPACE, Subject, Workload};

/// The binary that is measured unless another one is asked for.
const OPERATOR: &str = "nodeset-controller";
/// One simulated node has room for many more, but then there would be few nodes to know of.
const PODS_PER_NODE: u32 = 10;

const EXPLANATION: &str = "\
A cluster of the profile `scale` is made for the measurement, with a simulated node for every 10 pods, and removed
afterwards. No Slurm runs in it: pods are deleted without a drain. An operator may need a while to be sure of that,
so the first phase begins when it has been up for 90 s with empty NodeSets.

One JSON object per phase goes to standard output, everything else to standard error:

  out     the NodeSets grow from 0 to all pods
  idle60  60 s with nothing to do
  update  a new image rolls through all pods
  in      the NodeSets shrink to 0

  who, phase, n, nodesets  what was measured, and with how many pods and NodeSets
  pods_exist_s             seconds from the change until all (new) pods exist; `in`: until all are gone
  settled_s                seconds from the change until the status of every NodeSet says so
  cpu_s, peak_rss_mib      CPU time and largest memory of the process
  requests, by             requests to the API server, also by verb and resource, without watches

CPU time, memory and requests are those from the change until 5 s after it has settled.";

/// Options of the bench command.
#[derive(clap::Args)]
#[command(after_long_help = EXPLANATION)]
pub struct Args {
    /// How many pods, over all NodeSets.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// How many NodeSets the pods are spread over, evenly.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodesets: u32,
    /// How many pods of a NodeSet may be unavailable during the update, as a number or a percentage.
    #[arg(long, default_value = "25%", value_parser = subject::max_unavailable)]
    max_unavailable: Value,
    /// The cluster, which must not exist.
    #[arg(long, default_value = "bench")]
    name: Name,
    /// Leave the cluster running, for a look.
    #[arg(long)]
    keep: bool,
    /// Measure this program in place of a release build of the operator. Its file name is its User-Agent, and it
    /// takes the operator's flags.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Makes a cluster, measures and prints.
pub fn run(args: &Args) -> Result<()> {
    ensure!(
        args.nodesets <= args.pods,
        "{} pods are too few for {} NodeSets: each gets one at least",
        args.pods,
        args.nodesets
    );
    if let Some(program) = &args.program {
        ensure!(program.is_file(), "there is no program {}", program.display());
    }
    let cluster = LocalCluster::new(&args.name)?;
    ensure!(
        !cluster.layout.dir.exists(),
        "cluster {0} exists: a measurement needs a new one, so remove it with `cargo xtask cluster down --name {0}`",
        args.name
    );
    let program = match &args.program {
        Some(program) => absolute(program)?,
        None => step(format!("build {OPERATOR}"), || build(&cluster))?,
    };
    let workload = Workload::new(args.pods, args.nodesets, &args.max_unavailable);
    let subject = Subject::operator(program, &workload)?;
    let nodes = args.pods.div_ceil(PODS_PER_NODE).to_string();
    let up = cluster.manage("up", &["--profile", "scale", "--nodes", &nodes]);
    let outcome = up.and_then(|()| measure(&cluster, &subject, &workload));
    // The cluster goes in any case; what failed first is told.
    if args.keep { outcome } else { outcome.and(cluster.manage("down", &[])) }
}

/// The operator as it is shipped: built with optimisations, beside the build of this program.
fn build(cluster: &LocalCluster) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--package", OPERATOR, "--bin", OPERATOR]);
    succeed(cargo.current_dir(WORKSPACE))?;
    Ok(cluster.programs()?.with_file_name("release").join(OPERATOR))
}

fn measure(cluster: &LocalCluster, subject: &Subject, workload: &Workload) -> Result<()> {
    step("install the definitions", || {
        let definitions = fs::read_to_string(format!("{WORKSPACE}/deploy/crds.yaml"))?;
        cluster.apply("default", &definitions)?;
        let mut wait = cluster.command("kubectl");
        wait.args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
        succeed(wait.stdout(stderr()))
    })?;
    step("describe empty NodeSets", || {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": subject.objects});
        cluster.apply(NAMESPACE, &list.to_string())
    })?;
    Measurement::start(cluster, subject, workload)?.run()
}
