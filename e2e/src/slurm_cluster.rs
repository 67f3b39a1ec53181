//! A whole Slurm cluster: real daemons in real pods, managed by our binaries, used by real clients.

use crate::process::{Process, binary, scratch};
use crate::test_env::TestEnv;
use crate::{audit, eventually};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use operator_runtime::apply::Object;
use serde_json::{Value, json};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How long daemons may take to start on a busy machine.
pub const STARTED: Duration = Duration::from_mins(4);

/// A Slurm cluster with objects of every kind.
pub const CLUSTER: &str = include_str!("../fixtures/slurm-cluster.yaml");

/// The lines of slurm.conf that daemons need in the containers of a test.
pub const REQUIRED_CONF: &str =
    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n";

/// The selector of worker pods.
pub const WORKERS: &str = "app.kubernetes.io/name=slurmd";

/// The pod of the first slurmctld.
pub const CONTROLLER_POD: &str = "slurm-controller-0";

/// Starts a controller that watches the namespace of a test.
fn start_controller(env: &TestEnv, program: &str) -> Result<Process> {
    let log = scratch(&format!("{}-{program}.log", env.namespace()))?;
    Process::start_elected(binary(program)?, &["--namespaces", env.namespace()], &log)
}

/// A namespace with a Slurm cluster.
pub struct SlurmCluster {
    /// The namespace and the controller-controller.
    pub env: TestEnv,
    controllers: Vec<Process>,
    programs: Vec<String>,
}

impl SlurmCluster {
    /// Starts the controller-controller and the given other controllers in a namespace of their own.
    pub async fn start(test: &str, other_controllers: &[&str]) -> Result<Self> {
        let env = TestEnv::start("controller-controller", test).await?;
        let start = |program: &&str| start_controller(&env, program);
        let controllers = other_controllers.iter().map(start).collect::<Result<_>>()?;
        let programs = [&["controller-controller"], other_controllers].concat();
        let programs = programs.into_iter().map(str::to_owned).collect();
        Ok(Self { env, controllers, programs })
    }

    /// Kills the other controllers.
    pub fn kill_controllers(&mut self) {
        self.controllers.clear();
    }

    /// Starts the other controllers again.
    pub fn start_controllers(&mut self) -> Result<()> {
        let others = self.programs.iter().skip(1);
        self.controllers =
            others.map(|program| start_controller(&self.env, program)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Two namespaces that the same processes reconcile, which watch all namespaces.
    pub async fn start_two(test: &str, programs: &[&str]) -> Result<[Self; 2]> {
        let cluster = async || {
            let env = TestEnv::without_controller("controller-controller", test).await?;
            let programs = programs.iter().map(|program| (*program).to_owned()).collect();
            anyhow::Ok(Self { env, controllers: vec![], programs })
        };
        let (one, other) = (cluster().await?, cluster().await?);
        let start = |program: &&str| {
            Process::start_elected(binary(program)?, &[], &scratch(&format!("{test}-{program}.log"))?)
        };
        let controllers = programs.iter().map(start).collect::<Result<_>>()?;
        Ok([Self { controllers, ..one }, other])
    }

    /// Applies a manifest as a user does.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let mut command = self.kubectl(&["apply", "--server-side", "--force-conflicts", "--filename", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        child.stdin.take().context("kubectl has no standard input")?.write_all(manifest.as_bytes())?;
        ensure!(child.wait()?.success(), "kubectl apply failed");
        Ok(())
    }

    /// Applies these kinds of [`CLUSTER`] without accounting, with fields of the Controller's spec replaced; `null`
    /// removes a field.
    pub fn apply_kinds(&self, kinds: &[&str], controller_spec: &Value) -> Result<()> {
        let mut documents: Vec<Value> = serde_saphyr::from_multiple(CLUSTER)?;
        documents.retain(|document| kinds.iter().any(|kind| document["kind"] == *kind));
        for controller in documents.iter_mut().filter(|document| document["kind"] == "Controller") {
            let fields = controller["spec"].as_object_mut().context("a Controller without spec")?;
            fields.remove("accountingRef");
            fields.extend(controller_spec.as_object().context("a spec")?.clone());
            fields.retain(|_, value| !value.is_null());
        }
        let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
        self.apply(&documents.join("\n---\n"))
    }

    /// `kubectl` in this namespace.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(["--namespace", self.env.namespace()]).args(arguments);
        command
    }

    /// Standard output of a command in a container, which must succeed.
    pub fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<String> {
        let arguments = [&["exec", pod, "--container", container, "--"], command].concat();
        output_of(self.kubectl(&arguments))
    }

    /// Standard output of a command beside the first slurmctld, which must succeed.
    pub fn exec_in_slurmctld(&self, command: &[&str]) -> Result<String> {
        self.exec(CONTROLLER_POD, "slurmctld", command)
    }

    /// Standard output of scontrol.
    pub fn scontrol(&self, arguments: &[&str]) -> Result<String> {
        self.exec_in_slurmctld(&[&["scontrol"], arguments].concat())
    }

    /// Waits until the current generation of an object is ready, which includes the start of its daemons.
    pub async fn wait_until_ready<K: Object>(&self, name: &str) -> Result<K> {
        self.env.wait_for_ready_reason_within(name, "AsExpected", STARTED).await
    }

    /// The pods.
    pub fn pods(&self) -> Api<Pod> {
        self.env.api()
    }

    /// The UIDs of the worker pods by name.
    pub async fn workers(&self) -> Result<BTreeMap<String, String>> {
        let workers = self.pods().list(&ListParams::default().labels(WORKERS)).await?;
        Ok(workers.items.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
    }

    /// Waits until the worker pods, as UIDs by name, satisfy `is_expected`.
    pub async fn wait_for_workers(
        &self,
        what: &str,
        timeout: Duration,
        is_expected: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Result<()> {
        eventually(what, timeout, async || self.workers().await, is_expected)
            .await
            .with_context(|| self.pods_and_events())?;
        Ok(())
    }

    /// Where to look when something went wrong.
    fn pods_and_events(&self) -> String {
        let get = |arguments: &[&str]| {
            output_of(self.kubectl(arguments)).unwrap_or_else(|error| format!("{error:#}"))
        };
        [get(&["get", "pods"]), get(&["events"])].join("\n")
    }

    /// Merges fields into the spec of the NodeSet `worker`; `null` removes a field.
    pub async fn patch_nodeset(&self, spec: Value) -> Result<NodeSet> {
        self.env.patch_spec("worker", spec).await
    }

    /// Sets the replicas of the NodeSet `worker`.
    pub async fn scale(&self, workers: usize) -> Result<NodeSet> {
        self.patch_nodeset(json!({ "replicas": workers })).await
    }

    /// The states of the Slurm nodes by name.
    pub fn node_states(&self) -> Result<BTreeMap<String, String>> {
        let listed = self.exec_in_slurmctld(&["sinfo", "-hN", "-o", "%N %T"])?;
        let lines = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(lines.map(|(name, state)| (name.to_owned(), state.trim().to_owned())).collect())
    }

    /// The pod of the first slurmctld, and the statuses of its containers.
    pub async fn controller_pod(&self) -> Result<(Pod, Vec<ContainerStatus>)> {
        let pod = self.pods().get(CONTROLLER_POD).await?;
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        Ok((pod, statuses.unwrap_or_default()))
    }

    /// How often the containers beside the first slurmctld, and its own, were restarted.
    pub async fn controller_restarts(&self) -> Result<i32> {
        let (_, statuses) = self.controller_pod().await?;
        Ok(statuses.iter().map(|status| status.restart_count).sum())
    }

    /// All requests of our binaries to the API server so far, without watches.
    pub fn requests(&self) -> Result<Vec<String>> {
        let mut requests = Vec::new();
        for program in &self.programs {
            requests.extend(audit::requests(program, self.env.namespace())?);
        }
        Ok(requests)
    }
}

/// Standard output of a command; if it fails, an error with its standard error.
pub fn output_of(mut command: Command) -> Result<String> {
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("{command:?}"))?;
    let stderr = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{command:?} ended with {status}: {stderr}");
    Ok(String::from_utf8(stdout)?)
}
