//! What happens to a Slurm cluster with a running job when the operator or the charts change, and without an operator.

use crate::fixture::{
    OPERATOR, Pods, SLURM, definitions, install_all, job_state, kubectl, kubectl_with_input, login, operator,
    pods, slurm, submit, wait_for_nodes,
};
use crate::permissions;
use anyhow::{Context, Result, ensure};
use e2e::helm::Release;
use e2e::slurm_cluster::STARTED;
use e2e::{client, eventually, report};
use kube::Client;
use serde_json::json;
use tokio::time::Instant;

/// A running job, and the pods of its cluster, none of which may be replaced or restarted.
struct Running {
    client: Client,
    job: String,
    pods: Pods,
}

impl Running {
    /// Fails if the job has ended or a pod was replaced or restarted.
    async fn ensure_undisturbed(&self, by: &str) -> Result<()> {
        let state = job_state(&self.job)?;
        ensure!(state == "RUNNING", "the job is {state} after {by}");
        let mut now = pods(&self.client, SLURM).await?;
        // Others are new.
        now.retain(|name, _| self.pods.contains_key(name));
        ensure!(now == self.pods, "{by} changed the pods from {:#?} to {now:#?}", self.pods);
        report(format_args!("installation: {by}: {} pods and the job go on", now.len()));
        Ok(())
    }
}

#[tokio::test]
async fn slurm_cluster_outlives_upgrades_and_removal_of_the_operator() -> Result<()> {
    let client = client().await?;
    let begun = Instant::now();
    install_all(&client).await?;
    wait_for_nodes(&["slinky-0 idle", "slinky-1 idle"]).await?;
    report(format_args!("installation: Slurm nodes idle after {:.0} s", begun.elapsed().as_secs_f64()));
    let mut hosts: Vec<_> = login(&["srun", "-N2", "hostname"])?.lines().map(str::to_owned).collect();
    hosts.sort();
    ensure!(hosts == ["slinky-0", "slinky-1"], "{hosts:?}");
    for release in [operator()?, slurm()?] {
        release.test()?;
    }
    report("installation: helm test of the operator and of the Slurm cluster succeeded");

    let job = submit("slinky-0").await?;
    let started = Instant::now();
    ensure_eviction_refused("worker slurm-worker-slinky-0 runs a job")?;
    report(format_args!(
        "eviction: refused {:.1} s after the job was seen to run",
        started.elapsed().as_secs_f64()
    ));
    let running = Running { client: client.clone(), pods: pods(&client, SLURM).await?, job };
    for release in [operator()?, slurm()?] {
        upgrade_and_roll_back(&release, &running).await?;
    }
    operator()?.with_values(&json!({ "global": { "logLevel": "debug" } }))?.install()?;
    running.ensure_undisturbed("new pods of the operator").await?;
    let small = operator()?.with_values(&json!({ "small": true }))?.install();
    let refusal = small.err().context("small beside a full installation was accepted")?.to_string();
    ensure!(refusal.contains("set nodeset.replicas=0 first"), "{refusal}");
    requests_while_the_webhook_is_down(&running).await?;
    change_configuration(&running).await?;

    permissions::no_request_was_denied()?;
    operator()?.uninstall()?;
    let left = async || kubectl(&["get", "pods", "--namespace", OPERATOR, "--output=name"]);
    eventually("the end of the operator", STARTED, left, String::is_empty).await?;
    running.ensure_undisturbed("removal of the operator").await?;
    operator()?.install()?;
    scale(3)?;
    wait_for_nodes(&["slinky-0 mixed", "slinky-1 idle", "slinky-2 idle"]).await?;
    scale(2)?;
    let slurm_pods = async || pods(&client, SLURM).await;
    let is_removed = |pods: &Pods| !pods.contains_key("slurm-worker-slinky-2");
    eventually("the removal of a worker", STARTED, slurm_pods, is_removed).await?;
    running.ensure_undisturbed("return of the operator").await?;

    login(&["scancel", &running.job])?;
    slurm()?.uninstall()?;
    let only_database = |pods: &Pods| pods.keys().eq(["mariadb"]);
    eventually("the removal of the Slurm cluster", STARTED, slurm_pods, only_database).await?;
    permissions::rights_are_those_that_are_used(&client).await?;
    kubectl(&["delete", "namespace", SLURM])?;
    operator()?.uninstall()?;
    definitions().uninstall()?;
    let definitions = kubectl(&["get", "crds", "--output=name"])?;
    ensure!(definitions.contains("nodesets.slinky.slurm.net"), "the definitions are gone: {definitions}");
    Ok(())
}

/// Sets the number of workers.
fn scale(workers: u8) -> Result<()> {
    let replicas = format!("--replicas={workers}");
    kubectl(&["scale", "--namespace", SLURM, "nodesets/slurm-worker-slinky", &replicas]).map(drop)
}

/// Upgrades a release to another version of its chart, and back.
async fn upgrade_and_roll_back(release: &Release, running: &Running) -> Result<()> {
    let before = release.chart_version()?;
    release.with_chart_version("0.9.9")?.install()?;
    ensure!(release.chart_version()? == "0.9.9", "the chart was not upgraded");
    running.ensure_undisturbed("upgrade of a chart").await?;
    release.roll_back()?;
    ensure!(release.chart_version()? == before, "the chart was not rolled back");
    running.ensure_undisturbed("rollback of a chart").await
}

/// Adds a line to slurm.conf, which a pod checks before slurmctld reads it.
async fn change_configuration(running: &Running) -> Result<()> {
    slurm()?
        .with_values(&json!({ "controller": { "extraConfMap": { "MessageTimeout": 23 } } }))?
        .install()?;
    let in_force = async || login(&["scontrol", "show", "config"]);
    let has_line = |shown: &String| {
        shown.lines().any(|line| line.starts_with("MessageTimeout") && line.contains("= 23 sec"))
    };
    eventually("the new configuration in slurmctld", STARTED, in_force, has_line).await?;
    running.ensure_undisturbed("a change of slurm.conf").await
}

fn evict(pod: &str) -> Result<String> {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "namespace": SLURM, "name": pod },
    });
    let path = format!("/api/v1/namespaces/{SLURM}/pods/{pod}/eviction");
    kubectl_with_input(&["create", "--raw", &path, "--filename", "-"], &eviction.to_string())
}

/// Fails unless the eviction of the worker with the job is refused for this reason.
fn ensure_eviction_refused(reason: &str) -> Result<()> {
    let refusal = evict("slurm-worker-slinky-0").err().context("the worker of a job was evicted")?;
    ensure!(refusal.to_string().contains(reason), "{refusal:#}");
    Ok(())
}

/// What docs/webhook.md says about requests without the webhook.
async fn requests_while_the_webhook_is_down(running: &Running) -> Result<()> {
    let scale = |replicas: &str| {
        let replicas = format!("--replicas={replicas}");
        kubectl(&["scale", "--namespace", OPERATOR, "deployment/slurm-operator-webhook", &replicas])
    };
    let create = |name: &str, option: &str| {
        let nodeset = json!({
            "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": { "name": name },
            "spec": { "controllerRef": { "name": "slurm" }, "replicas": 0 },
        });
        kubectl_with_input(&["create", "--namespace", SLURM, option, "--filename", "-"], &nodeset.to_string())
    };
    create("early", "--dry-run=none")?;
    scale("0")?;
    let refusal = async || Ok(create("late", "--dry-run=server").err().map(|error| error.to_string()));
    let is_of_api_server =
        |error: &Option<String>| error.as_ref().is_some_and(|error| error.contains("failed calling webhook"));
    eventually("a refusal without the webhook", STARTED, refusal, is_of_api_server).await?;
    kubectl(&["label", "--namespace", SLURM, "nodeset/early", "changed=true"])?;
    kubectl(&["delete", "--namespace", SLURM, "nodeset/early", "--timeout=60s"])?;
    ensure_eviction_refused("disruption budget")?;
    scale("2")?;
    kubectl(&[
        "rollout",
        "status",
        "--namespace",
        OPERATOR,
        "deployment/slurm-operator-webhook",
        "--timeout=2m",
    ])?;
    let accepted = async || create("late", "--dry-run=server");
    eventually("an answer of the webhook", STARTED, accepted, |_| true).await?;
    running.ensure_undisturbed("an outage of the webhook").await
}
