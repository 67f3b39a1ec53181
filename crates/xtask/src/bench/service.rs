//! The benchmark of the expectations service: how long a request for a batch takes, and what NodeSets cost in memory.

use super::background::Background;
use super::report::{mebibytes, seconds};
use super::usage;
use crate::cluster::{LocalCluster, Name};
use crate::commands::{self, cargo, output};
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const SERVICE: &str = "expectations";
/// The account of the replicas, in the namespace of the service.
const ACCOUNT: &str = "replicas";
const AUDIENCE: &str = "expectations.slinky.slurm.net";
/// Port of the service, in the network of the cluster.
const PORT: u16 = 8443;
/// The core that the service runs on.
const CORE: &str = "0";

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
    let cpu = usage::cpu(bench.service.id())?;
    let load =
        step(format!("{} batches per second", args.rate), || bench.load(1_000, args.rate, args.seconds))?;
    let cpu = usage::cpu(bench.service.id())?.saturating_sub(cpu);
    println!("{}", json!({ "phase": "rate", "load": load, "seconds": args.seconds, "cpu_s": seconds(cpu) }));
    Ok(())
}

/// A running service.
struct Bench<'a> {
    cluster: &'a LocalCluster,
    service: Background,
    load: PathBuf,
    authorities: PathBuf,
    token: PathBuf,
}

impl<'a> Bench<'a> {
    fn start(cluster: &'a LocalCluster) -> Result<Self> {
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT } });
        cluster.apply("default", &account.to_string())?;
        let release = cluster.programs()?.with_file_name("release");
        let mut command = cluster.command("taskset");
        command.args(["--cpu-list", CORE]).arg(release.join(SERVICE));
        command.args(["--health-addr=0", "--metrics-addr=0", "--max-begins=1000000"]);
        command.arg(format!("--listen-addr=127.0.0.1:{PORT}"));
        command.arg(format!("--service-accounts=default/{ACCOUNT}"));
        let log = cluster.programs()?.join("bench-expectations.log");
        let service = Background::start(&mut command, log)?;
        let authorities = "configmap/expectations-ca";
        // One at a time: kubectl waits for the creation of a single object only.
        for object in [authorities, "secret/expectations-tls"] {
            let mut wait = cluster.command("kubectl");
            wait.args(["wait", "--for=create", "--timeout=60s", object]);
            commands::run(wait.stdout(std::io::stderr()))?;
        }
        let mut get = cluster.command("kubectl");
        get.args(["get", authorities, "--output", r"jsonpath={.data.ca\.crt}"]);
        let authorities = write(cluster, "expectations-ca.crt", &output(&mut get)?)?;
        let mut create = cluster.command("kubectl");
        create.args(["create", "token", ACCOUNT, "--duration=1h", "--audience", AUDIENCE]);
        let token = write(cluster, "expectations-token", &output(&mut create)?)?;
        Ok(Self { cluster, service, load: release.join("examples/load"), authorities, token })
    }

    /// Lets three replicas work, and returns what they measured.
    fn load(&self, nodesets: u32, rate: u32, seconds: u32) -> Result<Value> {
        let mut command = self.cluster.command(&self.load);
        command.arg(format!("--endpoint=https://localhost:{PORT}"));
        command.arg("--ca-file").arg(&self.authorities).arg("--token-file").arg(&self.token);
        command.arg(format!("--nodesets={nodesets}"));
        command.args([format!("--rate={rate}"), format!("--seconds={seconds}")]);
        let measured = output(&mut command)?;
        serde_json::from_str(&measured).with_context(|| measured.clone())
    }

    /// Resident memory of the service, in KiB.
    fn memory(&self) -> Result<u32> {
        usage::reset_peak_memory(self.service.id())?;
        usage::peak_memory(self.service.id())
    }
}

fn write(cluster: &LocalCluster, name: &str, content: &str) -> Result<PathBuf> {
    let file: &Path = &cluster.layout.dir.join(name);
    fs::write(file, content).with_context(|| file.display().to_string())?;
    Ok(file.to_owned())
}
