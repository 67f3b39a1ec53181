//! Workers with real Slurm daemons: scaled, updated, cordoned, deleted and replaced without harm to running jobs.

#[path = "node_nodeset/protection.rs"]
mod protection;

use anyhow::{Context, Result, ensure};
use e2e::slurm_cluster::{REQUIRED_CONF, STARTED, SlurmCluster, WORKERS, output_of};
use e2e::test_env::condition;
use e2e::{eventually, report};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use slinky_api::conditions::{PARTITION_HELD, SLURM_REACHABLE};
use slinky_api::labels::annotations::{POD_CORDON, POD_DEADLINE};
use slinky_api::v1beta1::{Controller, NodeSet, RestApi};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::RwLock;
use tokio::time::{Instant, sleep};

/// The kinds of a cluster with workers.
const KINDS: [&str; 5] = ["Secret", "ConfigMap", "Controller", "RestApi", "NodeSet"];
/// Timeout for changes that take seconds, on a busy machine.
const SOON: Duration = Duration::from_mins(2);
/// How soon a cordon has to reach Slurm.
const DRAIN_LATENCY: Duration = Duration::from_secs(5);
/// The pause before each read of the node states, which starts processes here and in a pod.
const READ_INTERVAL: Duration = Duration::from_millis(200);

/// The tests share a Kubernetes node. One that cordons it writes, one that needs workers as they are reads.
static CORDONS: RwLock<()> = RwLock::const_new(());

/// Starts a cluster and waits until this many workers are idle and the nodeset-controller has read their states.
async fn start_cluster(test: &str, workers: usize, extra_conf: &str) -> Result<SlurmCluster> {
    let cluster = SlurmCluster::start(test, &["restapi-controller", "nodeset-controller"]).await?;
    cluster.apply_kinds(&KINDS, &json!({ "extraConf": format!("{REQUIRED_CONF}{extra_conf}") }))?;
    cluster.scale(workers).await?;
    cluster.wait_until_ready::<Controller>("slurm").await?;
    wait_until_idle(&cluster, workers).await?;
    let reachable = async || condition(&cluster.env.get::<NodeSet>("worker").await?, SLURM_REACHABLE);
    eventually("a reachable Slurm", STARTED, reachable, |reachable| reachable.status == "True").await?;
    cluster.wait_until_ready::<NodeSet>("worker").await?;
    Ok(cluster)
}

/// The states of the Slurm nodes by name.
async fn states(cluster: &SlurmCluster) -> Result<BTreeMap<String, String>> {
    sleep(READ_INTERVAL).await;
    cluster.node_states()
}

/// Waits until the workers with the first ordinals are idle, and returns the seconds that it took.
async fn wait_until_idle(cluster: &SlurmCluster, workers: usize) -> Result<f64> {
    let begun = Instant::now();
    let idle = |states: &BTreeMap<String, String>| {
        (0..workers)
            .all(|ordinal| states.get(&format!("worker-{ordinal}")).is_some_and(|state| state == "idle"))
    };
    eventually("idle workers", STARTED, async || states(cluster).await, idle).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn wait_for_state(
    cluster: &SlurmCluster,
    node: &str,
    state: &str,
    limit: Duration,
) -> Result<Duration> {
    let begun = Instant::now();
    let has_state = |states: &BTreeMap<String, String>| states.get(node).is_some_and(|seen| seen == state);
    eventually(&format!("{node} {state}"), limit, async || states(cluster).await, has_state).await?;
    Ok(begun.elapsed())
}

/// Waits until what scontrol shows about `subject` is as expected.
async fn wait_until_shown(
    cluster: &SlurmCluster,
    subject: &str,
    what: &str,
    is_expected: impl Fn(&str) -> bool,
) -> Result<()> {
    let show = async || cluster.scontrol(&["show", subject]);
    eventually(what, SOON, show, |shown: &String| is_expected(shown)).await?;
    Ok(())
}

/// Submits a job without time limit that runs on these nodes, waits until it runs, and returns its id.
async fn submit(cluster: &SlurmCluster, nodes: &str, seconds: u64) -> Result<String> {
    submit_with_limit(cluster, nodes, seconds, "UNLIMITED").await
}

/// As [`submit`], with a time limit.
async fn submit_with_limit(cluster: &SlurmCluster, nodes: &str, seconds: u64, limit: &str) -> Result<String> {
    let wrap = format!("sleep {seconds}");
    let count = if nodes.contains('[') || nodes.contains(',') { "2" } else { "1" };
    let command =
        ["sbatch", "--parsable", "-o", "/dev/null", "-t", limit, "-N", count, "-w", nodes, "--wrap", &wrap];
    let id = cluster.exec_in_slurmctld(&command)?.trim().to_owned();
    wait_for_job_state(cluster, &id, "RUNNING").await?;
    Ok(id)
}

fn job_state(cluster: &SlurmCluster, id: &str) -> Result<String> {
    let job = cluster.scontrol(&["show", "job", id])?;
    let state = job.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
    Ok(state.context("a job without state")?.to_owned())
}

async fn wait_for_job_state(cluster: &SlurmCluster, id: &str, state: &str) -> Result<()> {
    eventually(&format!("job {id} {state}"), SOON, async || job_state(cluster, id), |seen| seen == state)
        .await?;
    Ok(())
}

/// Waits until no pod of before is left.
async fn wait_for_new_pods(cluster: &SlurmCluster, before: &BTreeMap<String, String>) -> Result<()> {
    let all_replaced = |now: &BTreeMap<String, String>| {
        now.len() == before.len() && now.iter().all(|(name, uid)| before.get(name) != Some(uid))
    };
    cluster.wait_for_workers("new pods", STARTED, all_replaced).await?;
    Ok(())
}

/// Waits until a job has completed, and fails if its pod is replaced or deleted before.
async fn wait_until_completed_on_its_pod(cluster: &SlurmCluster, id: &str, pod: &str) -> Result<()> {
    let before = cluster.workers().await?.get(pod).cloned().with_context(|| format!("no pod {pod}"))?;
    loop {
        let is_kept = cluster.workers().await?.get(pod) == Some(&before);
        let state = job_state(cluster, id)?;
        if state == "COMPLETED" {
            return Ok(());
        }
        ensure!(state == "RUNNING" || state == "COMPLETING", "job {id} is {state}");
        // The job may have ended between the two reads.
        ensure!(is_kept || job_state(cluster, id)? == "COMPLETED", "{pod} was deleted while job {id} ran");
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn scaling_updates_cordons_and_pod_deletions_spare_running_jobs() -> Result<()> {
    let cluster = start_cluster("jobs", 3, "").await?;
    let hostnames = cluster.exec_in_slurmctld(&["srun", "-N3", "hostname"])?;
    ensure!((0..3).all(|ordinal| hostnames.contains(&format!("worker-{ordinal}"))), "{hostnames}");
    scale_in_drains_busy_workers(&cluster).await?;
    update_waits_for_a_job(&cluster).await?;
    cordon_drains_and_uncordon_resumes(&cluster).await?;
    deleted_pod_is_recreated(&cluster).await?;
    cluster.env.tear_down().await
}

/// From three workers to one, while both surplus workers run a job.
async fn scale_in_drains_busy_workers(cluster: &SlurmCluster) -> Result<()> {
    // All workers are busy, so those are deleted whose jobs may end sooner. The jobs run longer than a just started
    // controller waits before its first drain.
    let kept = submit_with_limit(cluster, "worker-0", 100, "20").await?;
    let job = submit_with_limit(cluster, "worker-[1-2]", 75, "10").await?;
    // The controller may still know the ends of the job before, which had no limit, or no ends at all.
    let list = async || Ok(cluster.pods().list(&ListParams::default().labels(WORKERS)).await?.items);
    let has_end = |pod: &Pod| {
        let end = pod.annotations().get(POD_DEADLINE).and_then(|end| end.parse::<Timestamp>().ok());
        end.is_some_and(|end| end < now() + SignedDuration::from_hours(1))
    };
    eventually("ends of all jobs", SOON, list, |pods| pods.iter().all(has_end)).await?;
    cluster.scale(1).await?;
    wait_for_state(cluster, "worker-2", "draining", SOON).await?;
    wait_until_completed_on_its_pod(cluster, &job, "worker-2").await?;
    let ended = Instant::now();
    cluster.wait_for_workers("worker-0 only", SOON, |pods| pods.keys().eq(["worker-0"])).await?;
    report(format_args!(
        "scale-in: pods deleted {:.1} s after the end of the job",
        ended.elapsed().as_secs_f64()
    ));
    wait_for_job_state(cluster, &kept, "COMPLETED").await?;
    let states = states(cluster).await?;
    ensure!(states.iter().all(|(name, state)| name == "worker-0" || state != "idle"), "{states:?}");
    cluster.scale(3).await?;
    report(format_args!(
        "scale-out: two workers idle again after {:.1} s",
        wait_until_idle(cluster, 3).await?
    ));
    Ok(())
}

/// A new template reaches all workers, the busy one after its job.
async fn update_waits_for_a_job(cluster: &SlurmCluster) -> Result<()> {
    let before = cluster.workers().await?;
    let job = submit(cluster, "worker-1", 30).await?;
    cluster.patch_nodeset(json!({ "slurmd": { "env": [{ "name": "NEW", "value": "1" }] } })).await?;
    wait_until_completed_on_its_pod(cluster, &job, "worker-1").await?;
    wait_for_new_pods(cluster, &before).await?;
    wait_until_idle(cluster, 3).await?;
    cluster.wait_until_ready::<NodeSet>("worker").await?;
    Ok(())
}

/// A cordon in Kubernetes drains in Slurm and an uncordon resumes; cordons and drains of an administrator are kept.
async fn cordon_drains_and_uncordon_resumes(cluster: &SlurmCluster) -> Result<()> {
    cluster.scontrol(&["update", "nodename=worker-1", "state=drain", "reason=bad disk"])?;
    let nodes: Api<Node> = Api::all(cluster.env.client().clone());
    let host = nodes.list(&ListParams::default()).await?.items.first().context("no node")?.name_any();
    let cordons = CORDONS.write().await;
    output_of(cluster.kubectl(&["cordon", &host]))?;
    let took = wait_for_state(cluster, "worker-0", "drained", DRAIN_LATENCY).await;
    output_of(cluster.kubectl(&["uncordon", &host]))?;
    report(format_args!("kubectl cordon: drained after {:.1} s", took?.as_secs_f64()));
    let took = wait_for_state(cluster, "worker-0", "idle", SOON).await?;
    drop(cordons);
    report(format_args!("kubectl uncordon: idle after {:.1} s", took.as_secs_f64()));

    let cordon = json!({ "metadata": { "annotations": { POD_CORDON: "true" } } });
    cluster.env.patch::<Pod>("worker-2", cordon).await?;
    wait_for_state(cluster, "worker-2", "drained", SOON).await?;
    // Causes several reconciles, none of which may undo what the administrator did.
    cluster.scale(4).await?;
    wait_for_state(cluster, "worker-3", "idle", STARTED).await?;
    cluster.scale(3).await?;
    cluster.env.wait_until_deleted_within::<Pod>("worker-3", SOON).await?;
    let kept = cluster.env.get::<Pod>("worker-2").await?;
    ensure!(kept.annotations().get(POD_CORDON).is_some_and(|value| value == "true"), "the cordon was undone");
    let states = states(cluster).await?;
    ensure!(states["worker-1"] == "drained" && states["worker-2"] == "drained", "{states:?}");
    ensure!(
        cluster.scontrol(&["show", "node", "worker-1"])?.contains("bad disk"),
        "the reason was overwritten"
    );

    let uncordon = json!({ "metadata": { "annotations": { POD_CORDON: null } } });
    cluster.env.patch::<Pod>("worker-2", uncordon).await?;
    cluster.scontrol(&["update", "nodename=worker-1", "state=resume"])?;
    wait_until_idle(cluster, 3).await?;
    Ok(())
}

/// A worker whose pod a user deletes is recreated.
async fn deleted_pod_is_recreated(cluster: &SlurmCluster) -> Result<()> {
    let before = cluster.workers().await?;
    cluster.env.delete::<Pod>("worker-0").await?;
    let begun = Instant::now();
    wait_for_replaced_worker(cluster, "worker-0", &before, SOON).await?;
    wait_for_state(cluster, "worker-0", "idle", SOON).await?;
    report(format_args!("pod deleted: recreated and idle after {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Waits until a worker has another pod than `before`.
async fn wait_for_replaced_worker(
    cluster: &SlurmCluster,
    worker: &str,
    before: &BTreeMap<String, String>,
    timeout: Duration,
) -> Result<()> {
    let is_replaced =
        |now: &BTreeMap<String, String>| now.get(worker).is_some_and(|uid| before.get(worker) != Some(uid));
    cluster.wait_for_workers(&format!("a new pod {worker}"), timeout, is_replaced).await
}

#[tokio::test]
async fn partition_is_kept_until_no_job_record_names_it() -> Result<()> {
    let cluster = start_cluster("partition", 1, "MinJobAge=60\n").await?;
    removed_partition_of_a_job_is_drained_first(&cluster).await?;
    deleted_nodeset_keeps_a_partition_that_a_job_record_names(&cluster).await?;
    cluster.env.tear_down().await
}

/// slurmctld ends the jobs of a partition that is removed from its configuration. So the partition stays, drained, until no
/// job record names it, and opens again if the NodeSet wants it back.
async fn removed_partition_of_a_job_is_drained_first(cluster: &SlurmCluster) -> Result<()> {
    let restarts = cluster.controller_restarts().await?;
    let job = submit(cluster, "worker-0", 60).await?;
    cluster.patch_nodeset(json!({ "partition": { "enabled": false } })).await?;
    let begun = Instant::now();
    wait_until_shown(cluster, "partition", "a drained partition", |shown| shown.contains("State=DRAIN"))
        .await?;
    report(format_args!("partition removed: drained after {:.1} s", begun.elapsed().as_secs_f64()));
    let refused = cluster.exec_in_slurmctld(&["sbatch", "--wrap", "hostname"]);
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("partition not available")),
        "a drained partition accepts jobs"
    );
    let held = async || condition(&cluster.env.get::<NodeSet>("worker").await?, PARTITION_HELD);
    let reported = eventually("a held partition", SOON, held, |held| held.reason == "JobRecords").await?;
    report(format_args!("partition held: {}", reported.message));
    wait_until_completed_on_its_pod(cluster, &job, "worker-0").await?;
    let ended = Instant::now();
    // The partition is read first: a job record that exists afterwards existed before.
    let partitions = async || Ok((cluster.scontrol(&["show", "partition"])?, held().await?.message));
    let is_removed = |(shown, _): &(String, String)| !shown.contains("PartitionName=worker");
    eventually("no partition", Duration::from_mins(5), partitions, is_removed).await?;
    ensure!(
        cluster.scontrol(&["show", "job", &job]).is_err(),
        "the partition was removed while a job record named it"
    );
    report(format_args!("partition removed {:.1} s after the end of the job", ended.elapsed().as_secs_f64()));
    ensure!(held().await?.status == "False", "{:?}", held().await);
    cluster.patch_nodeset(json!({ "partition": { "enabled": true } })).await?;
    let is_present = |shown: &str| shown.contains("PartitionName=worker");
    wait_until_shown(cluster, "partition", "the partition again", is_present).await?;
    ensure!(cluster.controller_restarts().await? == restarts, "slurmctld crashed");
    Ok(())
}

/// slurmctld crashes if a partition that a job record names is removed from its configuration.
async fn deleted_nodeset_keeps_a_partition_that_a_job_record_names(cluster: &SlurmCluster) -> Result<()> {
    let restarts = cluster.controller_restarts().await?;
    let job = submit(cluster, "worker-0", 1).await?;
    wait_for_job_state(cluster, &job, "COMPLETED").await?;
    cluster.env.delete::<NodeSet>("worker").await?;
    cluster.wait_for_workers("no workers", SOON, BTreeMap::is_empty).await?;
    cluster.env.wait_until_deleted_within::<NodeSet>("worker", Duration::from_mins(5)).await?;
    let is_removed = |shown: &str| !shown.contains("PartitionName=worker");
    wait_until_shown(cluster, "partition", "no partition", is_removed).await?;
    ensure!(cluster.controller_restarts().await? == restarts, "slurmctld crashed");
    Ok(())
}

#[tokio::test]
async fn no_worker_is_deleted_while_slurm_is_unreachable() -> Result<()> {
    let cluster = start_cluster("unreachable", 3, "").await?;
    let before = cluster.workers().await?;
    cluster.env.patch_spec::<RestApi>("slurm", json!({ "replicas": 0 })).await?;
    let replicas = async || {
        Ok(cluster.env.get::<Deployment>("slurm-restapi").await?.status.and_then(|status| status.replicas))
    };
    eventually("no slurmrestd", SOON, replicas, |replicas| replicas.unwrap_or_default() == 0).await?;
    let update = json!({ "replicas": 1, "slurmd": { "env": [{ "name": "NEW", "value": "1" }] } });
    cluster.patch_nodeset(update).await?;
    let until = Instant::now() + Duration::from_mins(1);
    while Instant::now() < until {
        ensure!(cluster.workers().await? == before, "a worker was deleted although its jobs were unknown");
        sleep(Duration::from_secs(2)).await;
    }
    let nodeset: NodeSet = cluster.env.api().get("worker").await?;
    report(format_args!("Slurm unreachable: {}", condition(&nodeset, "Progressing")?.message));
    cluster.env.patch_spec::<RestApi>("slurm", json!({ "replicas": 1 })).await?;
    let is_converged =
        |now: &BTreeMap<String, String>| now.len() == 1 && now.get("worker-0") != before.get("worker-0");
    cluster.wait_for_workers("one new worker", STARTED, is_converged).await?;
    wait_until_idle(&cluster, 1).await?;
    lost_state_of_slurmctld_spares_busy_workers(&cluster).await?;
    cluster.env.tear_down().await
}

/// slurmctld loses its state: a worker with a job keeps its pod, an idle worker is replaced.
async fn lost_state_of_slurmctld_spares_busy_workers(cluster: &SlurmCluster) -> Result<()> {
    cluster.scale(2).await?;
    wait_until_idle(cluster, 2).await?;
    submit(cluster, "worker-1", 600).await?;
    let get = async || cluster.env.get::<Pod>("worker-1").await;
    let is_busy = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.clone().any(|condition| {
            condition.type_ == "SlurmNodeStateMixed" || condition.type_ == "SlurmNodeStateAllocated"
        })
    };
    eventually("a busy worker", SOON, get, is_busy).await?;
    let before = cluster.workers().await?;
    let lose_state = "rm -rf /var/spool/slurmctld/*/*; kill -9 $(pidof slurmctld)";
    // The command fails because its container ends.
    let _ = cluster.exec_in_slurmctld(&["sh", "-c", lose_state]);
    wait_for_replaced_worker(cluster, "worker-0", &before, Duration::from_mins(5)).await?;
    wait_for_state(cluster, "worker-0", "idle", SOON).await?;
    ensure!(
        cluster.workers().await?.get("worker-1") == before.get("worker-1"),
        "the worker with a job was replaced"
    );
    Ok(())
}

#[tokio::test]
async fn replaced_worker_is_resumed_for_every_value_of_return_to_service() -> Result<()> {
    let cluster = start_cluster("return-to-service", 1, "ReturnToService=0\n").await?;
    for value in 0..3 {
        let conf = format!("{REQUIRED_CONF}ReturnToService={value}\n");
        cluster.env.patch_spec::<Controller>("slurm", json!({ "extraConf": conf })).await?;
        let is_applied = |config: &str| {
            config
                .lines()
                .any(|line| line.starts_with("ReturnToService") && line.ends_with(&format!("= {value}")))
        };
        wait_until_shown(&cluster, "config", "the new configuration", is_applied).await?;
        cluster.env.delete::<Pod>("worker-0").await?;
        let is_down =
            |states: &BTreeMap<String, String>| states.get("worker-0").is_none_or(|state| state != "idle");
        eventually("worker-0 not idle", SOON, async || states(&cluster).await, is_down).await?;
        wait_for_state(&cluster, "worker-0", "idle", STARTED).await?;
        cluster.exec_in_slurmctld(&["srun", "-w", "worker-0", "hostname"])?;
    }
    node_without_pod_gets_no_jobs(&cluster).await?;
    scheduled_update_waits_for_its_reservation(&cluster).await?;
    cluster.env.tear_down().await
}

/// With ReturnToService=2 a slurmd that still runs would resume its own node.
async fn node_without_pod_gets_no_jobs(cluster: &SlurmCluster) -> Result<()> {
    cluster.scale(2).await?;
    wait_until_idle(cluster, 2).await?;
    cluster.scale(1).await?;
    cluster.wait_for_workers("deletion of worker-1", SOON, |pods| !pods.contains_key("worker-1")).await?;
    let command = ["sbatch", "--parsable", "-o", "/dev/null", "-w", "worker-1", "--wrap", "hostname"];
    let id = cluster.exec_in_slurmctld(&command)?.trim().to_owned();
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        ensure!(job_state(cluster, &id)? == "PENDING", "a node without pod got a job");
        sleep(Duration::from_secs(1)).await;
    }
    cluster.exec_in_slurmctld(&["scancel", &id])?;
    Ok(())
}

/// Pods are replaced during the reservation, not before.
async fn scheduled_update_waits_for_its_reservation(cluster: &SlurmCluster) -> Result<()> {
    let before = cluster.workers().await?;
    let start = Timestamp::from_second(now().as_second() + 75)?;
    let strategy = json!({ "type": "ScheduledUpdate",
        "scheduledUpdate": { "startTime": start.to_string(), "duration": "10m" } });
    let env = json!([{ "name": "LATE", "value": "1" }]);
    cluster.patch_nodeset(json!({ "updateStrategy": strategy, "slurmd": { "env": env } })).await?;
    let is_reserved = |shown: &str| shown.contains("SlurmOperatorMaint-worker") && shown.contains("worker-0");
    wait_until_shown(cluster, "reservation", "a reservation", is_reserved).await?;
    while now() < start {
        ensure!(cluster.workers().await? == before, "a pod was replaced before the reservation began");
        sleep(Duration::from_secs(2)).await;
    }
    wait_for_replaced_worker(cluster, "worker-0", &before, STARTED).await?;
    let begun = now().duration_since(start);
    report(format_args!("scheduled update: replaced {} s after the reservation began", begun.as_secs()));
    let strategy = json!({ "type": "RollingUpdate", "scheduledUpdate": null });
    cluster.patch_nodeset(json!({ "updateStrategy": strategy })).await?;
    let is_deleted = |shown: &str| !shown.contains("SlurmOperatorMaint");
    wait_until_shown(cluster, "reservation", "no reservation", is_deleted).await
}

#[expect(clippy::disallowed_methods, reason = "the reservation starts relative to the real time")]
fn now() -> Timestamp {
    Timestamp::now()
}
