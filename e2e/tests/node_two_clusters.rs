//! Two Slurm clusters of the same name in two namespaces, reconciled by the same processes: neither affects the other.

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use e2e::slurm_cluster::{REQUIRED_CONF, STARTED, SlurmCluster};
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::json;
use slinky_api::labels::annotations::POD_CORDON;
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;

const PROGRAMS: [&str; 3] = ["controller-controller", "restapi-controller", "nodeset-controller"];

/// The UIDs of a cluster's workers by name, and the states of its Slurm nodes.
type Workers = (BTreeMap<String, String>, String);

/// Applies a cluster with one worker and keys of its own.
async fn apply_cluster(cluster: &SlurmCluster, key: &str) -> Result<()> {
    let keys = json!({ "slurm.key": format!("the slurm key of {key}, long enough to be one"),
        "jwt.key": format!("the signing key of {key}, long enough to be one") });
    cluster.env.apply::<Secret>("slurm-auth", json!({ "stringData": keys })).await?;
    // Without a Controller no workers are created, so the NodeSet can be scaled first.
    cluster.apply_kinds(&["NodeSet"], &json!({}))?;
    cluster.scale(1).await?;
    cluster.apply_kinds(&["ConfigMap", "Controller", "RestApi"], &json!({ "extraConf": REQUIRED_CONF }))
}

async fn observe(cluster: &SlurmCluster) -> Result<Workers> {
    let states = cluster.node_states()?.into_iter().map(|(name, state)| format!("{name} {state}"));
    Ok((cluster.workers().await?, states.collect::<Vec<_>>().join(", ")))
}

async fn wait_for_states(cluster: &SlurmCluster, states: &str) -> Result<()> {
    let has_states = |(_, observed): &Workers| observed == states;
    eventually(states, STARTED, async || observe(cluster).await, has_states).await?;
    Ok(())
}

/// Runs a job and returns its IP address, which must be that of the cluster's own worker.
async fn run_job(cluster: &SlurmCluster) -> Result<String> {
    let job = cluster.exec_in_slurmctld(&["srun", "hostname", "-i"])?;
    let worker = cluster.pods().get("worker-0").await?;
    let address = worker.status.and_then(|status| status.pod_ip).context("a worker without address")?;
    ensure!(job.trim() == address, "the job ran on {job}, the worker is {address}");
    Ok(address)
}

fn digest_of_keys(cluster: &SlurmCluster) -> Result<String> {
    cluster.exec_in_slurmctld(&["sha256sum", "/etc/slurm/slurm.key", "/etc/slurm/jwt.key"])
}

#[tokio::test]
async fn clusters_of_the_same_name_in_two_namespaces_do_not_affect_each_other() -> Result<()> {
    let [one, other] = SlurmCluster::start_two("twins", &PROGRAMS).await?;
    apply_cluster(&one, "one").await?;
    apply_cluster(&other, "the other").await?;
    for cluster in [&one, &other] {
        cluster.wait_until_ready::<Controller>("slurm").await?;
        cluster.wait_until_ready::<NodeSet>("worker").await?;
        wait_for_states(cluster, "worker-0 idle").await?;
    }
    ensure!(digest_of_keys(&one)? != digest_of_keys(&other)?, "both clusters have the same keys");
    ensure!(run_job(&one).await? != run_job(&other).await?, "both clusters have the same worker");

    wait_for_states(&other, "worker-0 idle").await?;
    let before = observe(&other).await?;
    one.scale(2).await?;
    wait_for_states(&one, "worker-0 idle, worker-1 idle").await?;
    let cordon = json!({ "metadata": { "annotations": { POD_CORDON: "true" } } });
    one.env.patch::<Pod>("worker-0", cordon).await?;
    wait_for_states(&one, "worker-0 drained, worker-1 idle").await?;
    ensure!(observe(&other).await? == before, "a scale-out or cordon affected the other cluster");

    one.scale(0).await?;
    one.wait_for_workers("no workers", STARTED, BTreeMap::is_empty).await?;
    ensure!(observe(&other).await? == before, "a scale-in affected the other cluster");
    run_job(&other).await?;
    let failure = one.exec_in_slurmctld(&["srun", "--immediate=1", "hostname"]);
    ensure!(failure.is_err(), "a cluster without workers ran a job");
    one.env.tear_down().await?;
    other.env.tear_down().await
}
