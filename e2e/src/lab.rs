//! Where a whole Slurm cluster runs: real daemons in real pods, looked after by our binaries, spoken to by real clients.

use crate::audit;
use crate::process::{Process, binary, scratch};
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use operator_runtime::apply::Object;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How long daemons may take to start, on a machine that does other things besides.
pub const STARTED: Duration = Duration::from_mins(4);

/// A Slurm cluster of every kind.
pub const CLUSTER: &str = include_str!("../../crates/xtask/demo/cluster.yaml");

/// What slurm.conf needs on this machine.
pub const NEEDED_CONF: &str =
    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n";

/// A namespace with a Slurm cluster.
pub struct Lab {
    /// The namespace and the controller of slurmctld.
    pub stage: Stage,
    _others: Vec<Process>,
    programs: Vec<String>,
}

impl Lab {
    /// Starts the controller of slurmctld and the given others in a namespace of their own.
    pub async fn open(test: &str, others: &[&str]) -> Result<Self> {
        let stage = Stage::set("controller-controller", test).await?;
        let start = |program: &&str| {
            let log = scratch(&format!("{}-{program}.log", stage.namespace()))?;
            Process::start(binary(program)?, &["--namespaces", stage.namespace()], &log)
        };
        let processes = others.iter().map(start).collect::<Result<_>>()?;
        let programs = [&["controller-controller"], others].concat();
        Ok(Self { stage, _others: processes, programs: programs.into_iter().map(str::to_owned).collect() })
    }

    /// Two namespaces that the same processes look after, as they look after all others.
    pub async fn open_two(test: &str, programs: &[&str]) -> Result<[Self; 2]> {
        let lab = async || {
            let stage = Stage::unattended("controller-controller", test).await?;
            let programs = programs.iter().map(|program| (*program).to_owned()).collect();
            anyhow::Ok(Self { stage, _others: vec![], programs })
        };
        let (one, other) = (lab().await?, lab().await?);
        let start = |program: &&str| {
            Process::start(binary(program)?, &[], &scratch(&format!("{test}-{program}.log"))?)
        };
        let processes = programs.iter().map(start).collect::<Result<_>>()?;
        Ok([Self { _others: processes, ..one }, other])
    }

    /// Applies a manifest as a user does.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let mut command = self.kubectl(&["apply", "--server-side", "--force-conflicts", "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child.stdin.take().context("no input to write to")?.write_all(manifest.as_bytes())?;
        ensure!(child.wait()?.success(), "kubectl apply failed");
        Ok(())
    }

    /// Applies these kinds of [`CLUSTER`] without accounting, with other fields in the Controller's spec from the start;
    /// `null` takes a field away.
    pub fn apply_part(&self, kinds: &[&str], spec: &Value) -> Result<()> {
        let mut documents: Vec<Value> = serde_saphyr::from_multiple(CLUSTER)?;
        documents.retain(|document| kinds.iter().any(|kind| document["kind"] == *kind));
        for controller in documents.iter_mut().filter(|document| document["kind"] == "Controller") {
            let fields = controller["spec"].as_object_mut().context("a Controller without spec")?;
            fields.remove("accountingRef");
            fields.extend(spec.as_object().context("a spec")?.clone());
            fields.retain(|_, value| !value.is_null());
        }
        let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
        self.apply(&documents.join("\n---\n"))
    }

    /// `kubectl` in this namespace.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(["--namespace", self.stage.namespace()]).args(arguments);
        command
    }

    /// What a command in a container prints; an error if it fails.
    pub fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<String> {
        let arguments = [&["exec", pod, "--container", container, "--"], command].concat();
        printed(self.kubectl(&arguments))
    }

    /// What slurmctld says.
    pub fn scontrol(&self, arguments: &[&str]) -> Result<String> {
        self.exec("slurm-controller-0", "slurmctld", &[&["scontrol"], arguments].concat())
    }

    /// Waits until an object is ready as it is now; daemons take their time to start.
    pub async fn ready<K: Object>(&self, name: &str) -> Result<K> {
        self.stage.ready_within(name, "AsExpected", STARTED).await
    }

    /// The pods.
    pub fn pods(&self) -> Api<Pod> {
        self.stage.api()
    }

    /// All requests of our binaries to the API server so far, but for watches.
    pub fn requests(&self) -> Result<Vec<String>> {
        let mut requests = Vec::new();
        for program in &self.programs {
            requests.extend(audit::requests(program, self.stage.namespace())?);
        }
        Ok(requests)
    }
}

/// What a command prints; an error with what it complains of if it fails.
pub fn printed(mut command: Command) -> Result<String> {
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("{command:?}"))?;
    let complaint = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{command:?} ended with {status}: {complaint}");
    Ok(String::from_utf8(stdout)?)
}
