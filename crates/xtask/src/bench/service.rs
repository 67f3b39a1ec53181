//! The benchmark of the expectations service: how long a request for a batch takes, and what NodeSets cost in memory.

use super::expectations::{Expectations, OTHER_CORE, SERVICE};
use super::report::{mebibytes, seconds};
use super::usage;
use crate::cluster::{LocalCluster, Name};
use crate::commands::{cargo, output};
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const EXPLANATION: &str = "\
The benchmark creates a cluster of the profile `control-plane`, and removes it afterwards. The service runs on one core.
One JSON object per phase goes to standard output, everything else to standard error:

  nodesets       every NodeSet has had a batch: the memory of the service above that with one NodeSet
  rate           batches begin at a fixed rate: how long Begin takes, and the CPU time of the service";

/// Options of the benchmark.
#[derive(clap::Args)]
#[command(after_long_help = EXPLANATION)]
pub struct Args {
    /// Number of NodeSets whose memory is measured.
    #[arg(long, default_value_t = 10_000)]
    nodesets: u32,
    /// Batches per second.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// Seconds with batches at that rate.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Name of the cluster, which must not exist.
    #[arg(long, default_value = "bench")]
    name: Name,
}

/// Creates a cluster, measures the service and prints the results.
pub fn run(args: &Args) -> Result<()> {
    let cluster = LocalCluster::new(&args.name)?;
    ensure!(
        !cluster.layout.dir.exists(),
        "cluster {0} exists: remove it with `cargo xtask cluster down --name {0}`",
        args.name
    );
    step("build the service", || {
        cargo(&["build", "--quiet", "--release", "--package", SERVICE, "--bin", SERVICE, "--example", "load"])
    })?;
    let up = cluster.manage("up", &["--profile", "control-plane"]);
    let outcome = up.and_then(|()| measure(&cluster, args));
    outcome.and(cluster.manage("down", &[]))
}

fn measure(cluster: &LocalCluster, args: &Args) -> Result<()> {
    let bench = Bench::start(cluster)?;
    bench.load(1, args.rate, 1)?;
    let before = bench.memory()?;
    let load = step(format!("{} NodeSets", args.nodesets), || bench.load(args.nodesets, args.rate, 0))?;
    let after = bench.memory()?;
    let grown = mebibytes(after.saturating_sub(before));
    println!(
        "{}",
        json!({ "phase": "nodesets", "load": load, "rss_mib": mebibytes(after), "above_base_mib": grown })
    );
    let cpu = bench.cpu()?;
    let load =
        step(format!("{} batches per second", args.rate), || bench.load(1_000, args.rate, args.seconds))?;
    let cpu = bench.cpu()?.saturating_sub(cpu);
    println!("{}", json!({ "phase": "rate", "load": load, "seconds": args.seconds, "cpu_s": seconds(cpu) }));
    Ok(())
}

/// A running service, and the program that loads it.
struct Bench<'a> {
    cluster: &'a LocalCluster,
    service: Expectations<'a>,
    load: PathBuf,
}

impl<'a> Bench<'a> {
    fn start(cluster: &'a LocalCluster) -> Result<Self> {
        let release = cluster.programs()?.with_file_name("release");
        let service = Expectations::start(cluster, release.join(SERVICE), &["--max-begins=1000000"])?;
        Ok(Self { cluster, service, load: release.join("examples/load") })
    }

    /// Lets three replicas work, and returns what they measured.
    fn load(&self, nodesets: u32, rate: u32, seconds: u32) -> Result<Value> {
        // Not on the core of the service.
        let mut command = self.cluster.command("taskset");
        command.args(["--cpu-list", OTHER_CORE]).arg(&self.load);
        self.service.authorize(&mut command, "").args(["--endpoint", &Expectations::endpoint()]);
        command.arg(format!("--nodesets={nodesets}"));
        command.args([format!("--rate={rate}"), format!("--seconds={seconds}")]);
        let measured = output(&mut command)?;
        serde_json::from_str(&measured).with_context(|| measured.clone())
    }

    /// CPU time of the service.
    fn cpu(&self) -> Result<Duration> {
        usage::cpu(self.service.process.id())
    }

    /// Resident memory of the service, in KiB.
    fn memory(&self) -> Result<u32> {
        usage::reset_peak_memory(self.service.process.id())?;
        usage::peak_memory(self.service.process.id())
    }
}
