//! Dangers that neither a pod nor the state of its Slurm node shows: suspended jobs, foreground deletions, updates that
//! break workers, probes that fail for a moment, machines that booted late.

use crate::{
    CORDONS, SOON, job_state, start_cluster, states, submit, wait_for_job_state, wait_for_new_pods,
    wait_for_replaced_worker, wait_for_state, wait_until_completed_on_its_pod, wait_until_idle,
};
use anyhow::{Result, ensure};
use e2e::slurm_cluster::{STARTED, SlurmCluster, output_of};
use e2e::test_env::condition;
use e2e::{eventually, report};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// For how long something must not happen.
const LONG_ENOUGH: Duration = Duration::from_secs(30);

/// Ensures for a while that the pod of a worker stays.
async fn ensure_kept(cluster: &SlurmCluster, pod: &str, danger: &str) -> Result<()> {
    let (before, begun) = (cluster.workers().await?.get(pod).cloned(), Instant::now());
    while begun.elapsed() < LONG_ENOUGH {
        ensure!(cluster.workers().await?.get(pod) == before.as_ref(), "{pod} was deleted {danger}");
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

#[tokio::test]
async fn suspended_jobs_and_foreground_deletions_spare_workers() -> Result<()> {
    // Without memory as a consumable resource the node of a suspended job is idle.
    let conf = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nMinJobAge=2\n";
    let cluster = start_cluster("protection", 2, conf).await?;
    scale_in_waits_for_a_suspended_job(&cluster).await?;
    foreground_deletion_waits_for_a_job(&cluster).await?;
    cluster.env.tear_down().await
}

async fn scale_in_waits_for_a_suspended_job(cluster: &SlurmCluster) -> Result<()> {
    let job = submit(cluster, "worker-1", 600).await?;
    cluster.scontrol(&["suspend", &job])?;
    wait_for_state(cluster, "worker-1", "idle", SOON).await?;
    cluster.scale(0).await?;
    wait_for_state(cluster, "worker-1", "drained", SOON).await?;
    let begun = Instant::now();
    ensure_kept(cluster, "worker-1", "while its job was suspended").await?;
    cluster.wait_for_workers("worker-1 only", SOON, |pods| pods.keys().eq(["worker-1"])).await?;
    cluster.scontrol(&["resume", &job])?;
    wait_for_job_state(cluster, &job, "RUNNING").await?;
    report(format_args!(
        "suspended job: its worker was drained and kept for {:.0} s, and the job went on",
        begun.elapsed().as_secs_f64()
    ));
    cluster.exec_in_slurmctld(&["scancel", &job])?;
    let ended = Instant::now();
    cluster.wait_for_workers("no workers", SOON, BTreeMap::is_empty).await?;
    report(format_args!("suspended job: pod deleted {:.1} s after its end", ended.elapsed().as_secs_f64()));
    cluster.scale(2).await?;
    wait_until_idle(cluster, 2).await?;
    Ok(())
}

async fn foreground_deletion_waits_for_a_job(cluster: &SlurmCluster) -> Result<()> {
    let job = submit(cluster, "worker-0", 45).await?;
    let begun = Instant::now();
    output_of(cluster.kubectl(&["delete", "nodeset", "worker", "--cascade=foreground", "--wait=false"]))?;
    wait_for_state(cluster, "worker-0", "draining", SOON).await?;
    report(format_args!("foreground deletion: drained after {:.1} s", begun.elapsed().as_secs_f64()));
    wait_until_completed_on_its_pod(cluster, &job, "worker-0").await?;
    for exists in [
        cluster.env.exists::<Service>("slurm-workers-slurm").await?,
        cluster.env.exists::<PodDisruptionBudget>("slurm-workers-pdb-slurm").await?,
    ] {
        ensure!(exists, "the garbage collector took what workers share");
    }
    let ended = Instant::now();
    cluster.wait_for_workers("no workers", SOON, BTreeMap::is_empty).await?;
    cluster.env.wait_until_deleted_within::<NodeSet>("worker", Duration::from_mins(3)).await?;
    report(format_args!(
        "foreground deletion: NodeSet gone {:.1} s after the end of the job",
        ended.elapsed().as_secs_f64()
    ));
    Ok(())
}

#[tokio::test]
async fn updates_keep_enough_workers_that_slurm_uses() -> Result<()> {
    let mut cluster = start_cluster("updates", 3, "").await?;
    failing_probes_drain_no_more_workers(&cluster).await?;
    useless_update_stops(&cluster).await?;
    worker_on_a_machine_that_booted_later_returns(&mut cluster).await?;
    cluster.env.tear_down().await
}

/// All workers run a job, and those that are not updated stop answering their probes for a while.
async fn failing_probes_drain_no_more_workers(cluster: &SlurmCluster) -> Result<()> {
    let mut jobs = vec![];
    for worker in ["worker-0", "worker-1", "worker-2"] {
        jobs.push(submit(cluster, worker, 600).await?);
    }
    cluster.patch_nodeset(json!({ "slurmd": { "env": [{ "name": "NEW", "value": "1" }] } })).await?;
    wait_for_state(cluster, "worker-2", "draining", SOON).await?;
    for worker in ["worker-0", "worker-1"] {
        cluster.exec(worker, "slurmd", &["sh", "-c", "kill -STOP $(pidof -s slurmd)"])?;
    }
    let is_unready = |pod: &Pod| {
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "False")
    };
    for worker in ["worker-0", "worker-1"] {
        let get = async || cluster.env.get::<Pod>(worker).await;
        eventually("an unready worker", SOON, get, is_unready).await?;
    }
    let uncordoned = CORDONS.read().await;
    let drained = |states: &BTreeMap<String, String>| {
        states.values().filter(|state| state.starts_with("drain")).count()
    };
    let get = async || states(cluster).await;
    eventually("one drained worker", SOON, get, |states| drained(states) == 1).await?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let states = states(cluster).await?;
        ensure!(drained(&states) == 1, "failing probes drained workers: {states:?}");
    }
    drop(uncordoned);
    for worker in ["worker-0", "worker-1"] {
        cluster.exec(worker, "slurmd", &["sh", "-c", "kill -CONT $(pidof -s slurmd)"])?;
    }
    for job in &jobs {
        ensure!(job_state(cluster, job)? == "RUNNING", "job {job} ended");
    }
    report("failing probes of two workers: one worker drained, the one being updated");
    let before = cluster.workers().await?;
    cluster.exec_in_slurmctld(
        &[&["scancel"], jobs.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat(),
    )?;
    wait_for_new_pods(cluster, &before).await?;
    wait_until_idle(cluster, 3).await?;
    cluster.wait_until_ready::<NodeSet>("worker").await?;
    Ok(())
}

/// slurmctld does not use workers that have less memory than their configuration says.
async fn useless_update_stops(cluster: &SlurmCluster) -> Result<()> {
    let before = cluster.workers().await?;
    // The job keeps its worker from being updated before Slurm refuses the first updated one.
    let job = submit(cluster, "worker-1", 600).await?;
    cluster.patch_nodeset(json!({ "extraConf": "RealMemory=99999999" })).await?;
    let begun = Instant::now();
    register_as_new_node(cluster, "worker-2", &before).await?;
    let degraded = async || condition(&cluster.env.get::<NodeSet>("worker").await?, "Degraded");
    let blocked =
        eventually("a blocked update", STARTED, degraded, |degraded| degraded.reason == "UpdateBlocked")
            .await?;
    report(format_args!(
        "useless update: reported after {:.1} s: {}",
        begun.elapsed().as_secs_f64(),
        blocked.message
    ));
    cluster.exec_in_slurmctld(&["scancel", &job])?;
    let uncordoned = CORDONS.read().await;
    wait_for_state(cluster, "worker-1", "idle", SOON).await?;
    wait_for_state(cluster, "worker-0", "idle", SOON).await?;
    let stopped = Instant::now();
    while stopped.elapsed() < LONG_ENOUGH {
        let (now, states) = (cluster.workers().await?, states(cluster).await?);
        for worker in ["worker-0", "worker-1"] {
            ensure!(now.get(worker) == before.get(worker), "the update went on to {worker}");
            ensure!(states[worker] == "idle", "the update went on: {states:?}");
        }
    }
    drop(uncordoned);
    let useless = cluster.workers().await?;
    cluster.patch_nodeset(json!({ "extraConf": null })).await?;
    let reverted = Instant::now();
    register_as_new_node(cluster, "worker-2", &useless).await?;
    wait_until_idle(cluster, 3).await?;
    report(format_args!(
        "useless update: all idle {:.1} s after the revert",
        reverted.elapsed().as_secs_f64()
    ));
    cluster.wait_until_ready::<NodeSet>("worker").await?;
    Ok(())
}

/// Waits for the next pod of a worker and has it register as a new Slurm node: slurmctld keeps the memory with which a
/// node was first registered until its record is deleted.
async fn register_as_new_node(
    cluster: &SlurmCluster,
    worker: &str,
    before: &BTreeMap<String, String>,
) -> Result<()> {
    wait_for_replaced_worker(cluster, worker, before, STARTED).await?;
    cluster.scontrol(&["delete", &format!("nodename={worker}")])?;
    let restart = async || cluster.exec(worker, "slurmd", &["sh", "-c", "kill $(pidof -s slurmd)"]);
    eventually("a running slurmd", STARTED, restart, |_| true).await?;
    Ok(())
}

/// Starts slurmd in a time namespace whose machine booted a second ago.
const ON_A_NEW_MACHINE: &str = r#"
    up="$(cut --delimiter . --fields 1 /proc/uptime)"
    exec unshare --time --boottime "-$((up - 1))" tini -- run-slurmd "$@"
"#;

/// slurmctld sets a node down that was in service, and whose machine booted since its last response.
async fn worker_on_a_machine_that_booted_later_returns(cluster: &mut SlurmCluster) -> Result<()> {
    let command = ["sh", "-c", ON_A_NEW_MACHINE, "slurmd"];
    cluster
        .patch_nodeset(json!({ "updateStrategy": { "type": "OnDelete" }, "slurmd": { "command": command } }))
        .await?;
    let before = cluster.workers().await?;
    // Like the loss of a machine this leaves no time to tell slurmctld, neither for the pod nor for the operator.
    cluster.kill_controllers();
    output_of(cluster.kubectl(&["delete", "pod", "worker-0", "--grace-period=0", "--force"]))?;
    cluster.env.wait_until_deleted_within::<Pod>("worker-0", SOON).await?;
    cluster.start_controllers()?;
    wait_for_replaced_worker(cluster, "worker-0", &before, STARTED).await?;
    let begun = Instant::now();
    let log = async || output_of(cluster.kubectl(&["logs", "slurm-controller-0", "-c", "slurmctld"]));
    let has_reboot = |log: &String| log.contains("unexpectedly rebooted");
    eventually("a reboot that slurmctld noticed", SOON, log, has_reboot).await?;
    let down = begun.elapsed().as_secs_f64();
    wait_for_state(cluster, "worker-0", "idle", SOON).await?;
    report(format_args!(
        "machine booted later: slurmctld set the node down after {down:.1} s, idle again after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    cluster.exec_in_slurmctld(&["srun", "-w", "worker-0", "hostname"])?;
    Ok(())
}
