//! An installed operator, and a Slurm cluster that it runs.

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use e2e::helm::{Release, SLURM_VALUES};
use e2e::slurm_cluster::{STARTED, output_of};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// The namespace of the operator.
pub const OPERATOR: &str = "slinky";
/// The namespace of the Slurm cluster.
pub const SLURM: &str = "slurm";
/// The database of slurmdbd.
const DATABASE: &str = include_str!("../../../crates/xtask/demo/database.yaml");

/// Creates a namespace that admits only pods of the Pod Security profile `restricted`.
pub async fn create_restricted_namespace(client: &Client, name: &str) -> Result<()> {
    create_namespace(client, name, json!({ "pod-security.kubernetes.io/enforce": "restricted" })).await
}

/// Creates a namespace, unless it exists.
pub async fn create_namespace(client: &Client, name: &str, labels: Value) -> Result<()> {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    let params = PatchParams::apply("e2e").force();
    Api::<Namespace>::all(client.clone()).patch(name, &params, &Patch::Apply(&namespace)).await?;
    Ok(())
}

/// The release of the custom resource definitions.
pub fn definitions() -> Release {
    Release::new("slurm-operator/charts/slurm-operator-crds", "slurm-operator-crds", OPERATOR)
}

/// The release of the operator with the default values, but for the images.
pub fn operator() -> Result<Release> {
    Release::new("slurm-operator", "slurm-operator", OPERATOR).with_tested_images()
}

/// The release of a Slurm cluster of all kinds with two workers.
pub fn slurm() -> Result<Release> {
    let release = Release::new("slurm", "slurm", SLURM).with_values_file(SLURM_VALUES);
    release.with_values(&json!({ "nodesets": { "slinky": { "replicas": 2 } } }))
}

/// Installs the custom resource definitions, and removes the operator that a failed test left.
pub async fn prepare(client: &Client) -> Result<()> {
    create_restricted_namespace(client, OPERATOR).await?;
    definitions().install()?;
    operator()?.uninstall()
}

/// Installs everything, MariaDB included.
pub async fn install_all(client: &Client) -> Result<()> {
    prepare(client).await?;
    create_namespace(client, SLURM, json!({})).await?;
    kubectl_with_input(&["apply", "--namespace", SLURM, "--filename", "-"], DATABASE)?;
    operator()?.install()?;
    slurm()?.install()
}

/// Standard output of kubectl.
pub fn kubectl(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("kubectl");
    command.args(arguments);
    output_of(command)
}

/// Standard output of kubectl with this standard input.
pub fn kubectl_with_input(arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new("kubectl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("kubectl has no standard input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Standard output of a command in the login pod.
pub fn login(command: &[&str]) -> Result<String> {
    let exec = ["exec", "--namespace", SLURM, "deployment/slurm-login-slinky", "--container", "login", "--"];
    kubectl(&[&exec[..], command].concat())
}

/// UID and number of restarts of each pod by name.
pub type Pods = BTreeMap<String, (String, i32)>;

/// The pods of a namespace.
pub async fn pods(client: &Client, namespace: &str) -> Result<Pods> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
    Ok(pods
        .into_iter()
        .map(|pod| (pod.name_any(), (pod.uid().unwrap_or_default(), restarts(&pod))))
        .collect())
}

fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.iter();
    let statuses = status.flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses].into_iter().flatten().flatten()
    });
    statuses.map(|status| status.restart_count).sum()
}

/// Waits until the Slurm nodes have these states, such as `slinky-0 idle`.
pub async fn wait_for_nodes(expected: &[&str]) -> Result<()> {
    let states = async || {
        let listed = login(&["sinfo", "-hN", "-o", "%N %T"])?;
        Ok(listed.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>())
    };
    eventually("states of the Slurm nodes", STARTED, states, |states| states == expected).await?;
    Ok(())
}

/// The state of a job.
pub fn job_state(job: &str) -> Result<String> {
    let shown = login(&["scontrol", "show", "job", job])?;
    let state = shown.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
    Ok(state.context("a job without state")?.to_owned())
}

/// Submits a job that runs for a long time on a node, and waits until it runs.
pub async fn submit(node: &str) -> Result<String> {
    let sbatch = ["sbatch", "--parsable", "--output=/dev/null", "--nodelist", node, "--wrap", "sleep 3600"];
    let job = login(&sbatch)?.trim().to_owned();
    eventually("a running job", STARTED, async || job_state(&job), |state| state == "RUNNING").await?;
    Ok(job)
}
