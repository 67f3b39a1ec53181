//! Two Slurm clusters of one name in two namespaces, looked after by the same processes: whatever happens to one is nothing
//! to the other.

use anyhow::{Context, Result, ensure};
use e2e::eventually;
use e2e::lab::{Lab, NEEDED_CONF, STARTED};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use slinky_api::labels::annotations::POD_CORDON;
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;

const PROGRAMS: [&str; 3] = ["controller-controller", "restapi-controller", "nodeset-controller"];

/// What is seen of a cluster: its workers' UIDs, and the states of its nodes.
type Seen = (BTreeMap<String, String>, String);

/// A cluster with one worker and a key of its own.
async fn make(lab: &Lab, key: &str) -> Result<()> {
    let keys = json!({ "slurm.key": format!("the slurm key of {key}, long enough to be one"),
        "jwt.key": format!("the signing key of {key}, long enough to be one") });
    lab.stage.put::<Secret>("slurm-auth", json!({ "stringData": keys })).await?;
    // Nobody makes workers before there is a Controller.
    lab.apply_part(&["NodeSet"], &json!({}))?;
    scale(lab, 1).await?;
    lab.apply_part(&["ConfigMap", "Controller", "RestApi"], &json!({ "extraConf": NEEDED_CONF }))
}

async fn scale(lab: &Lab, workers: usize) -> Result<NodeSet> {
    lab.stage.edit("worker", json!({ "replicas": workers })).await
}

async fn workers(lab: &Lab) -> Result<Vec<Pod>> {
    Ok(lab.pods().list(&ListParams::default().labels("app.kubernetes.io/name=slurmd")).await?.items)
}

async fn seen(lab: &Lab) -> Result<Seen> {
    let uids = workers(lab).await?.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default()));
    let states = lab.exec("slurm-controller-0", "slurmctld", &["sinfo", "-hN", "-o", "%N %T"])?;
    Ok((uids.collect(), states.trim().replace('\n', ", ")))
}

async fn states_become(lab: &Lab, states: &str) -> Result<()> {
    let says = |(_, seen): &Seen| seen == states;
    eventually(states, STARTED, async || seen(lab).await, says).await?;
    Ok(())
}

/// The address that a job finds itself at, which must be that of the cluster's own worker.
async fn address_of_a_job(lab: &Lab) -> Result<String> {
    let told = lab.exec("slurm-controller-0", "slurmctld", &["srun", "hostname", "-i"])?;
    let worker = lab.pods().get("worker-0").await?;
    let address = worker.status.and_then(|status| status.pod_ip).context("a worker without address")?;
    ensure!(told.trim() == address, "the job ran at {told}, the worker is at {address}");
    Ok(address)
}

fn digest_of_key(lab: &Lab) -> Result<String> {
    lab.exec("slurm-controller-0", "slurmctld", &["sha256sum", "/etc/slurm/slurm.key", "/etc/slurm/jwt.key"])
}

#[tokio::test]
async fn clusters_of_one_name_in_two_namespaces_never_meet() -> Result<()> {
    let [one, other] = Lab::open_two("twins", &PROGRAMS).await?;
    make(&one, "one").await?;
    make(&other, "the other").await?;
    for lab in [&one, &other] {
        lab.ready::<Controller>("slurm").await?;
        lab.ready::<NodeSet>("worker").await?;
        states_become(lab, "worker-0 idle").await?;
    }
    ensure!(digest_of_key(&one)? != digest_of_key(&other)?, "one key for two clusters");
    ensure!(address_of_a_job(&one).await? != address_of_a_job(&other).await?, "one worker for two clusters");

    states_become(&other, "worker-0 idle").await?;
    let untouched = seen(&other).await?;
    scale(&one, 2).await?;
    states_become(&one, "worker-0 idle, worker-1 idle").await?;
    let patch = json!({ "metadata": { "annotations": { POD_CORDON: "true" } } });
    one.pods().patch("worker-0", &PatchParams::default(), &Patch::Merge(patch)).await?;
    states_become(&one, "worker-0 drained, worker-1 idle").await?;
    ensure!(seen(&other).await? == untouched, "the other cluster felt a scale-out or a cordon");

    scale(&one, 0).await?;
    eventually("no workers", STARTED, async || workers(&one).await, Vec::is_empty).await?;
    ensure!(seen(&other).await? == untouched, "the other cluster felt a scale-in");
    address_of_a_job(&other).await?;
    let failure = one.exec("slurm-controller-0", "slurmctld", &["srun", "--immediate=1", "hostname"]);
    ensure!(failure.is_err(), "a cluster without workers ran a job");
    one.stage.end().await?;
    other.stage.end().await
}
