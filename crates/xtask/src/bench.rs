//! The benchmark: how fast, and at what cost, an operator scales and updates NodeSets on simulated nodes.

mod api;
mod audit;
mod background;
mod cluster_state;
mod expectations;
mod measurement;
mod operator;
mod reflector;
mod report;
mod service;
mod usage;
mod workload;

use crate::WORKSPACE;
use crate::cluster::{LocalCluster, Name, Profile, check_machine};
use crate::commands::{self, cargo};
use crate::progress::step;
use anyhow::{Result, ensure};
use expectations::SERVICE;
use measurement::Measurement;
use operator::Operator;
use serde_json::{Value, json};
use std::fs;
use std::io::stderr;
use std::path::{Path, PathBuf, absolute};
use workload::{NAMESPACE, Workload, parse_max_unavailable};

/// The binary that is measured by default.
const OPERATOR: &str = "nodeset-controller";
/// A simulated node has capacity for many more, but then the cluster would have too few nodes to be realistic.
const PODS_PER_NODE: u32 = 10;

const EXPLANATION: &str = "\
The benchmark creates a cluster of the profile `scale`, with one simulated node per 10 pods, and removes it
afterwards. No Slurm runs in it: pods are deleted without a drain. The operator needs some time to conclude that, so
the first phase starts after the operator has run for 90 s with empty NodeSets.

One JSON object per phase goes to standard output, everything else to standard error:

  out     the NodeSets grow from 0 to all pods
  idle60  60 s without changes
  update  a new image rolls through all pods
  in      the NodeSets shrink to 0

  who, phase, n, nodesets  program, phase, number of pods and NodeSets
  replicas                 number of active processes of the program
  pods_exist_s             seconds from the change until all (new) pods exist; `in`: until all are deleted
  settled_s                seconds from the change until the status of every NodeSet reports it
  cpu_s, busiest_cpu_s     CPU time of all replicas together, and of the busiest one
  service_cpu_s            CPU time of the expectations service
  peak_rss_mib             peak memory of the largest replica
  requests, by             requests to the API server, also by verb and resource, without watches

CPU time, memory and requests are counted from the change until 5 s after it has settled.";

/// Options of the bench command.
#[derive(clap::Args)]
#[command(after_long_help = EXPLANATION, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    other: Option<OtherBenchmark>,
    /// Number of pods, over all NodeSets.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Number of NodeSets that the pods are spread over evenly.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodesets: u32,
    /// Number of Slurm clusters that the NodeSets are spread over evenly.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    clusters: u32,
    /// Run this many active replicas, coordinated by the expectations service, instead of one without it. They are started
    /// again until the clusters are spread as evenly as possible.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    replicas: Option<u8>,
    /// `maxUnavailable` of the NodeSets during the update, a number or a percentage.
    #[arg(long, default_value = "25%", value_parser = parse_max_unavailable)]
    max_unavailable: Value,
    /// Name of the cluster, which must not exist.
    #[arg(long, default_value = "bench")]
    name: Name,
    /// Keep the cluster running, to inspect it.
    #[arg(long)]
    keep: bool,
    /// Measure this program instead of a release build of the operator. Its User-Agent has to begin with its file
    /// name, and it has to accept the operator's flags.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Benchmarks of other programs.
#[derive(clap::Subcommand)]
enum OtherBenchmark {
    /// Measure the expectations service.
    Expectations(service::Args),
}

/// Creates a cluster, measures the phases and prints the results.
pub fn run(args: &Args) -> Result<()> {
    if let Some(OtherBenchmark::Expectations(args)) = &args.other {
        return service::run(args);
    }
    ensure!(
        args.nodesets <= args.pods,
        "{} pods are too few for {} NodeSets: each needs at least one",
        args.pods,
        args.nodesets
    );
    ensure!(
        args.clusters <= args.nodesets,
        "{} NodeSets are too few for {} Slurm clusters: each needs at least one",
        args.nodesets,
        args.clusters
    );
    if let Some(program) = &args.program {
        ensure!(program.is_file(), "{} is not a file", program.display());
    }
    check_machine(Profile::Scale)?;
    let cluster = LocalCluster::new(&args.name)?;
    ensure!(
        !cluster.layout.dir.exists(),
        "cluster {0} exists, but a measurement needs a new one: remove it with `cargo xtask cluster down --name {0}`",
        args.name
    );
    let program = match &args.program {
        Some(program) => absolute(program)?,
        None => step(format!("build {OPERATOR}"), || build(&cluster))?,
    };
    let workload = Workload::new(args.pods, args.nodesets, args.clusters, &args.max_unavailable);
    let nodes = args.pods.div_ceil(PODS_PER_NODE).to_string();
    let up = cluster.manage("up", &["--profile", "scale", "--nodes", &nodes]);
    let outcome = up.and_then(|()| measure(&cluster, &program, &workload, args.replicas));
    // The cluster is removed in any case; the first error is reported.
    if args.keep { outcome } else { outcome.and(cluster.manage("down", &[])) }
}

/// Builds the operator in release mode, into the target directory of this program.
fn build(cluster: &LocalCluster) -> Result<PathBuf> {
    // One selection for both: another one would build the libraries again.
    cargo(&["build", "--quiet", "--release", "--package", OPERATOR, "--package", SERVICE, "--bins"])?;
    Ok(cluster.programs()?.with_file_name("release").join(OPERATOR))
}

fn measure(cluster: &LocalCluster, program: &Path, workload: &Workload, replicas: Option<u8>) -> Result<()> {
    step("install the CRDs", || {
        let crds = fs::read_to_string(format!("{WORKSPACE}/deploy/crds.yaml"))?;
        cluster.apply("default", &crds)?;
        let mut wait = cluster.command("kubectl");
        wait.args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
        commands::run(wait.stdout(stderr()))
    })?;
    step("apply empty NodeSets", || {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": workload.objects()});
        cluster.apply(NAMESPACE, &list.to_string())
    })?;
    let operator = match replicas {
        None => Operator::start(cluster, program)?,
        Some(count) => step(format!("start {count} replicas and the expectations service"), || {
            Operator::start_replicas(cluster, program, count, workload)
        })?,
    };
    Measurement::start(cluster, program, workload, operator)?.run()
}
