//! Workers that real Slurm daemons run jobs on: scaled, updated, cordoned, killed and lost, and no job the worse for it.

use anyhow::{Context, Result, ensure};
use e2e::lab::{Lab, NEEDED_CONF, STARTED, printed};
use e2e::stage::condition;
use e2e::{eventually, report};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use slinky_api::conditions::{PARTITION_HELD, SLURM_REACHABLE};
use slinky_api::labels::annotations::POD_CORDON;
use slinky_api::v1beta1::{Controller, NodeSet, RestApi};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What a cluster with workers needs.
const KINDS: [&str; 5] = ["Secret", "ConfigMap", "Controller", "RestApi", "NodeSet"];
/// How long something may take that is a matter of seconds, on a machine that does other things besides.
const SOON: Duration = Duration::from_mins(2);
/// How soon a cordon has to reach Slurm.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long a look at Slurm waits for the one before.
const LOOK: Duration = Duration::from_millis(200);

/// A cluster with so many workers that are idle, of which the controller has heard.
async fn cluster(test: &str, workers: usize, extra_conf: &str) -> Result<Lab> {
    let lab = Lab::open(test, &["restapi-controller", "nodeset-controller"]).await?;
    lab.apply_part(&KINDS, &json!({ "extraConf": format!("{NEEDED_CONF}{extra_conf}") }))?;
    scale(&lab, workers).await?;
    lab.ready::<Controller>("slurm").await?;
    all_idle(&lab, workers).await?;
    let look = async || condition(&lab.stage.api::<NodeSet>().get("worker").await?, SLURM_REACHABLE);
    eventually("word from Slurm", STARTED, look, |reachable| reachable.status == "True").await?;
    lab.ready::<NodeSet>("worker").await?;
    Ok(lab)
}

async fn scale(lab: &Lab, workers: usize) -> Result<NodeSet> {
    lab.stage.edit("worker", json!({ "replicas": workers })).await
}

/// The states of the Slurm nodes. A look costs processes here and there, so looks keep a distance.
async fn states(lab: &Lab) -> Result<BTreeMap<String, String>> {
    sleep(LOOK).await;
    let told = lab.exec("slurm-controller-0", "slurmctld", &["sinfo", "-hN", "-o", "%N %T"])?;
    let lines = told.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.map(|(name, state)| (name.to_owned(), state.trim().to_owned())).collect())
}

/// Waits until the first workers are idle, and gives the time that it took.
async fn all_idle(lab: &Lab, workers: usize) -> Result<f64> {
    let begun = Instant::now();
    let idle = |states: &BTreeMap<String, String>| {
        (0..workers)
            .all(|ordinal| states.get(&format!("worker-{ordinal}")).is_some_and(|state| state == "idle"))
    };
    eventually("idle workers", STARTED, async || states(lab).await, idle).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn state_becomes(lab: &Lab, node: &str, state: &str, limit: Duration) -> Result<Duration> {
    let begun = Instant::now();
    let is_so = |states: &BTreeMap<String, String>| states.get(node).is_some_and(|seen| seen == state);
    eventually(&format!("{node} {state}"), limit, async || states(lab).await, is_so).await?;
    Ok(begun.elapsed())
}

/// Names and UIDs of the worker pods.
async fn pods(lab: &Lab) -> Result<BTreeMap<String, String>> {
    let list = lab.pods().list(&ListParams::default().labels("app.kubernetes.io/name=slurmd")).await?;
    Ok(list.items.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
}

/// Submits a job for these nodes, and waits until it runs.
async fn submit(lab: &Lab, nodes: &str, seconds: u64) -> Result<String> {
    let wrap = format!("sleep {seconds}");
    let count = if nodes.contains('[') || nodes.contains(',') { "2" } else { "1" };
    let command = ["sbatch", "--parsable", "-o", "/dev/null", "-N", count, "-w", nodes, "--wrap", &wrap];
    let id = lab.exec("slurm-controller-0", "slurmctld", &command)?.trim().to_owned();
    job_becomes(lab, &id, "RUNNING").await?;
    Ok(id)
}

fn job_state(lab: &Lab, id: &str) -> Result<String> {
    let told = lab.scontrol(&["show", "job", id])?;
    let state = told.split_whitespace().find_map(|word| word.strip_prefix("JobState="));
    Ok(state.context("a job without state")?.to_owned())
}

async fn job_becomes(lab: &Lab, id: &str, state: &str) -> Result<()> {
    eventually(&format!("job {id} {state}"), SOON, async || job_state(lab, id), |seen| seen == state).await?;
    Ok(())
}

/// While a job runs its pod stays: looks until the job is over, and then it must have completed.
async fn job_survives_with_its_pod(lab: &Lab, id: &str, pod: &str) -> Result<()> {
    let before = pods(lab).await?.get(pod).cloned().with_context(|| format!("no pod {pod}"))?;
    loop {
        let there = pods(lab).await?.get(pod) == Some(&before);
        let state = job_state(lab, id)?;
        if state == "COMPLETED" {
            return Ok(());
        }
        ensure!(state == "RUNNING" || state == "COMPLETING", "job {id} is {state}");
        // The job may have ended between the two looks.
        ensure!(there || job_state(lab, id)? == "COMPLETED", "{pod} went while job {id} ran");
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn workers_come_and_go_around_jobs() -> Result<()> {
    let lab = cluster("around", 3, "").await?;
    let told = lab.exec("slurm-controller-0", "slurmctld", &["srun", "-N3", "hostname"])?;
    ensure!((0..3).all(|ordinal| told.contains(&format!("worker-{ordinal}"))), "{told}");
    scale_in_with_a_job(&lab).await?;
    update_with_a_job(&lab).await?;
    cordon(&lab).await?;
    kill(&lab).await?;
    lab.stage.end().await
}

/// From three workers to one, both of those that leave with a job.
async fn scale_in_with_a_job(lab: &Lab) -> Result<()> {
    // All are busy, so the highest numbers go; and longer than drains wait after a start of the controller.
    let kept = submit(lab, "worker-0", 100).await?;
    let job = submit(lab, "worker-[1-2]", 75).await?;
    let protected = |pod: &Option<Pod>| {
        pod.as_ref().is_some_and(|pod| pod.labels().contains_key(slinky_api::labels::POD_PROTECT))
    };
    let look = async || Ok(lab.pods().get_opt("worker-2").await?);
    eventually("protection of a busy worker", SOON, look, protected).await?;
    scale(lab, 1).await?;
    state_becomes(lab, "worker-2", "draining", SOON).await?;
    job_survives_with_its_pod(lab, &job, "worker-2").await?;
    let ended = Instant::now();
    let left = |pods: &BTreeMap<String, String>| pods.keys().eq(["worker-0"]);
    eventually("ordinal 0 alone", SOON, async || pods(lab).await, left).await?;
    report(format_args!("scale-in: gone {:.1} s after the end of the job", ended.elapsed().as_secs_f64()));
    job_becomes(lab, &kept, "COMPLETED").await?;
    let gone = states(lab).await?;
    ensure!(gone.iter().all(|(name, state)| name == "worker-0" || state != "idle"), "{gone:?}");
    scale(lab, 3).await?;
    report(format_args!("scale-out: two workers idle again after {:.1} s", all_idle(lab, 3).await?));
    Ok(())
}

/// A new template reaches all workers, the busy one after its job.
async fn update_with_a_job(lab: &Lab) -> Result<()> {
    let before = pods(lab).await?;
    let job = submit(lab, "worker-1", 30).await?;
    lab.stage
        .edit::<NodeSet>("worker", json!({ "slurmd": { "env": [{ "name": "NEW", "value": "1" }] } }))
        .await?;
    job_survives_with_its_pod(lab, &job, "worker-1").await?;
    let replaced = |now: &BTreeMap<String, String>| {
        now.len() == 3 && now.iter().all(|(name, uid)| before.get(name) != Some(uid))
    };
    eventually("new pods", STARTED, async || pods(lab).await, replaced).await?;
    all_idle(lab, 3).await?;
    lab.ready::<NodeSet>("worker").await?;
    Ok(())
}

/// A cordon in Kubernetes is a drain in Slurm, and back; what people did stays.
async fn cordon(lab: &Lab) -> Result<()> {
    lab.scontrol(&["update", "nodename=worker-1", "state=drain", "reason=bad disk"])?;
    let nodes: Api<Node> = Api::all(lab.stage.client().clone());
    let host = nodes.list(&ListParams::default()).await?.items.first().context("no node")?.name_any();
    printed(lab.kubectl(&["cordon", &host]))?;
    let took = state_becomes(lab, "worker-0", "drained", AT_ONCE).await;
    printed(lab.kubectl(&["uncordon", &host]))?;
    report(format_args!("kubectl cordon: drained after {:.1} s", took?.as_secs_f64()));
    let took = state_becomes(lab, "worker-0", "idle", SOON).await?;
    report(format_args!("kubectl uncordon: idle after {:.1} s", took.as_secs_f64()));

    let patch = json!({ "metadata": { "annotations": { POD_CORDON: "true" } } });
    lab.pods().patch("worker-2", &PatchParams::default(), &Patch::Merge(patch)).await?;
    state_becomes(lab, "worker-2", "drained", SOON).await?;
    // Enough for several passes, of which none may undo what a person did.
    scale(lab, 4).await?;
    state_becomes(lab, "worker-3", "idle", STARTED).await?;
    scale(lab, 3).await?;
    let pods = lab.pods();
    let gone = async || Ok(pods.get_opt("worker-3").await?);
    eventually("worker-3 gone", SOON, gone, Option::is_none).await?;
    let kept = lab.pods().get("worker-2").await?;
    ensure!(kept.annotations().get(POD_CORDON).is_some_and(|value| value == "true"), "the cordon was undone");
    let now = states(lab).await?;
    ensure!(now["worker-1"] == "drained" && now["worker-2"] == "drained", "{now:?}");
    ensure!(lab.scontrol(&["show", "node", "worker-1"])?.contains("bad disk"), "the reason was overwritten");

    let patch = json!({ "metadata": { "annotations": { POD_CORDON: null } } });
    lab.pods().patch("worker-2", &PatchParams::default(), &Patch::Merge(patch)).await?;
    lab.scontrol(&["update", "nodename=worker-1", "state=resume"])?;
    all_idle(lab, 3).await?;
    Ok(())
}

/// A worker whose pod somebody deletes comes back by itself.
async fn kill(lab: &Lab) -> Result<()> {
    let before = pods(lab).await?;
    lab.pods().delete("worker-0", &DeleteParams::default()).await?;
    let begun = Instant::now();
    let replaced = |now: &BTreeMap<String, String>| {
        now.get("worker-0").is_some_and(|uid| before.get("worker-0") != Some(uid))
    };
    eventually("another worker-0", SOON, async || pods(lab).await, replaced).await?;
    state_becomes(lab, "worker-0", "idle", SOON).await?;
    report(format_args!("pod deleted: back and idle after {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

#[tokio::test]
async fn partitions_outlive_the_jobs_that_name_them() -> Result<()> {
    let lab = cluster("partition", 1, "MinJobAge=60\n").await?;
    remove_the_partition_of_a_job(&lab).await?;
    delete_while_a_job_names_the_partition(&lab).await?;
    lab.stage.end().await
}

/// slurmctld would end a job whose partition it is told to forget. It keeps the partition, without taking new jobs, until
/// nobody names it; and takes it back when it is wanted again.
async fn remove_the_partition_of_a_job(lab: &Lab) -> Result<()> {
    let restarts = restarts(lab).await?;
    let job = submit(lab, "worker-0", 60).await?;
    lab.stage.edit::<NodeSet>("worker", json!({ "partition": { "enabled": false } })).await?;
    let look = async || lab.scontrol(&["show", "partition"]);
    let begun = Instant::now();
    eventually("a closed partition", SOON, look, |told: &String| told.contains("State=DRAIN")).await?;
    report(format_args!("partition removed: closed after {:.1} s", begun.elapsed().as_secs_f64()));
    let refused = lab.exec("slurm-controller-0", "slurmctld", &["sbatch", "--wrap", "hostname"]);
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("partition not available")),
        "it takes jobs"
    );
    let held = async || condition(&lab.stage.api::<NodeSet>().get("worker").await?, PARTITION_HELD);
    let told = eventually("word of the job", SOON, held, |held| held.reason == "JobRecords").await?;
    report(format_args!("partition held: {}", told.message));
    job_survives_with_its_pod(lab, &job, "worker-0").await?;
    let ended = Instant::now();
    // The partition first: a record that is there afterwards was there before.
    let look = async || Ok((lab.scontrol(&["show", "partition"])?, held().await?.message));
    let gone = |(told, _): &(String, String)| !told.contains("PartitionName=worker");
    eventually("no partition", Duration::from_mins(5), look, gone).await?;
    ensure!(lab.scontrol(&["show", "job", &job]).is_err(), "the partition went while a record named it");
    report(format_args!("partition gone {:.1} s after the end of the job", ended.elapsed().as_secs_f64()));
    ensure!(held().await?.status == "False", "{:?}", held().await);
    lab.stage.edit::<NodeSet>("worker", json!({ "partition": { "enabled": true } })).await?;
    let look = async || lab.scontrol(&["show", "partition"]);
    eventually("the partition again", SOON, look, |told: &String| told.contains("PartitionName=worker"))
        .await?;
    ensure!(self::restarts(lab).await? == restarts, "slurmctld crashed");
    Ok(())
}

/// slurmctld would crash if it were told to forget a partition that a job record names.
async fn delete_while_a_job_names_the_partition(lab: &Lab) -> Result<()> {
    let restarts = restarts(lab).await?;
    let job = submit(lab, "worker-0", 1).await?;
    job_becomes(lab, &job, "COMPLETED").await?;
    lab.stage.api::<NodeSet>().delete("worker", &DeleteParams::default()).await?;
    let gone = async || Ok(lab.stage.api::<NodeSet>().get_opt("worker").await?);
    eventually("workers gone", SOON, async || pods(lab).await, BTreeMap::is_empty).await?;
    eventually("the NodeSet gone", Duration::from_mins(5), gone, Option::is_none).await?;
    let without = async || lab.scontrol(&["show", "partition"]);
    eventually("no partition", SOON, without, |told: &String| !told.contains("PartitionName=worker")).await?;
    ensure!(self::restarts(lab).await? == restarts, "slurmctld crashed");
    Ok(())
}

async fn restarts(lab: &Lab) -> Result<i32> {
    let pod = lab.pods().get("slurm-controller-0").await?;
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    Ok(statuses.iter().map(|status| status.restart_count).sum())
}

#[tokio::test]
async fn without_word_from_slurm_no_worker_goes() -> Result<()> {
    let lab = cluster("silence", 3, "").await?;
    let before = pods(&lab).await?;
    let rest: Api<Deployment> = lab.stage.api();
    lab.stage.edit::<RestApi>("slurm", json!({ "replicas": 0 })).await?;
    let away = async || Ok(rest.get("slurm-restapi").await?.status.and_then(|status| status.replicas));
    eventually("no slurmrestd", SOON, away, |replicas| replicas.unwrap_or_default() == 0).await?;
    lab.stage
        .edit::<NodeSet>(
            "worker",
            json!({ "replicas": 1, "slurmd": { "env": [{ "name": "NEW", "value": "1" }] } }),
        )
        .await?;
    let until = Instant::now() + Duration::from_mins(1);
    while Instant::now() < until {
        ensure!(pods(&lab).await? == before, "a worker went although nobody knew whether it had a job");
        sleep(Duration::from_secs(2)).await;
    }
    let nodeset: NodeSet = lab.stage.api().get("worker").await?;
    report(format_args!("Slurm silent: {}", condition(&nodeset, "Progressing")?.message));
    lab.stage.edit::<RestApi>("slurm", json!({ "replicas": 1 })).await?;
    let one =
        |now: &BTreeMap<String, String>| now.len() == 1 && now.get("worker-0") != before.get("worker-0");
    eventually("one new worker", STARTED, async || pods(&lab).await, one).await?;
    all_idle(&lab, 1).await?;
    lose_state(&lab).await?;
    lab.stage.end().await
}

/// slurmctld forgets everything: the worker with a job is left alone, another one comes back.
async fn lose_state(lab: &Lab) -> Result<()> {
    scale(lab, 2).await?;
    all_idle(lab, 2).await?;
    submit(lab, "worker-1", 600).await?;
    let look = async || Ok(lab.pods().get("worker-1").await?);
    let busy = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.clone().any(|condition| {
            condition.type_ == "SlurmNodeStateMixed" || condition.type_ == "SlurmNodeStateAllocated"
        })
    };
    eventually("that the worker is busy", SOON, look, busy).await?;
    let before = pods(lab).await?;
    let forget = "rm -rf /var/spool/slurmctld/*/*; kill -9 $(pidof slurmctld)";
    // The command ends with the container that it runs in.
    let _ = lab.exec("slurm-controller-0", "slurmctld", &["sh", "-c", forget]);
    let replaced = |now: &BTreeMap<String, String>| {
        now.get("worker-0").is_some_and(|uid| before.get("worker-0") != Some(uid))
    };
    eventually("a worker that comes back", Duration::from_mins(5), async || pods(lab).await, replaced)
        .await?;
    state_becomes(lab, "worker-0", "idle", SOON).await?;
    ensure!(pods(lab).await?.get("worker-1") == before.get("worker-1"), "the worker with a job was replaced");
    Ok(())
}

#[tokio::test]
async fn a_replaced_worker_works_again_whatever_slurm_returns_to_service() -> Result<()> {
    let lab = cluster("returns", 1, "ReturnToService=0\n").await?;
    for value in 0..3 {
        let conf = format!("{NEEDED_CONF}ReturnToService={value}\n");
        lab.stage.edit::<Controller>("slurm", json!({ "extraConf": conf })).await?;
        let told = async || lab.scontrol(&["show", "config"]);
        let set = |config: &String| {
            config
                .lines()
                .any(|line| line.starts_with("ReturnToService") && line.ends_with(&format!("= {value}")))
        };
        eventually("the configuration", SOON, told, set).await?;
        lab.pods().delete("worker-0", &DeleteParams::default()).await?;
        let old =
            |states: &BTreeMap<String, String>| states.get("worker-0").is_none_or(|state| state != "idle");
        eventually("that it is away", SOON, async || states(&lab).await, old).await?;
        state_becomes(&lab, "worker-0", "idle", STARTED).await?;
        lab.exec("slurm-controller-0", "slurmctld", &["srun", "-w", "worker-0", "hostname"])?;
    }
    removed_nodes_get_no_jobs(&lab).await?;
    scheduled_update(&lab).await?;
    lab.stage.end().await
}

/// With ReturnToService=2 a slurmd that still runs would put itself back to work.
async fn removed_nodes_get_no_jobs(lab: &Lab) -> Result<()> {
    scale(lab, 2).await?;
    all_idle(lab, 2).await?;
    scale(lab, 1).await?;
    let gone = |pods: &BTreeMap<String, String>| !pods.contains_key("worker-1");
    eventually("worker-1 gone", SOON, async || pods(lab).await, gone).await?;
    let command = ["sbatch", "--parsable", "-o", "/dev/null", "-w", "worker-1", "--wrap", "hostname"];
    let id = lab.exec("slurm-controller-0", "slurmctld", &command)?.trim().to_owned();
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        ensure!(job_state(lab, &id)? == "PENDING", "a node without pod got a job");
        sleep(Duration::from_secs(1)).await;
    }
    lab.exec("slurm-controller-0", "slurmctld", &["scancel", &id])?;
    Ok(())
}

/// Pods are replaced inside the reservation, and not before.
async fn scheduled_update(lab: &Lab) -> Result<()> {
    let before = pods(lab).await?;
    let start = Timestamp::from_second(now().as_second() + 75)?;
    let strategy = json!({ "type": "ScheduledUpdate",
        "scheduledUpdate": { "startTime": start.to_string(), "duration": "10m" } });
    lab.stage
        .edit::<NodeSet>(
            "worker",
            json!({ "updateStrategy": strategy, "slurmd": { "env": [{ "name": "LATE", "value": "1" }] } }),
        )
        .await?;
    let told = async || lab.scontrol(&["show", "reservation"]);
    let reserved = |told: &String| told.contains("SlurmOperatorMaint-worker") && told.contains("worker-0");
    eventually("a reservation", SOON, told, reserved).await?;
    let replaced = |now: &BTreeMap<String, String>| {
        now.get("worker-0").is_some_and(|uid| before.get("worker-0") != Some(uid))
    };
    while now() < start {
        ensure!(pods(lab).await? == before, "a pod was replaced before the reservation began");
        sleep(Duration::from_secs(2)).await;
    }
    eventually("another pod", STARTED, async || pods(lab).await, replaced).await?;
    let begun = now().duration_since(start);
    report(format_args!("scheduled update: replaced {} s after the reservation began", begun.as_secs()));
    lab.stage
        .edit::<NodeSet>(
            "worker",
            json!({ "updateStrategy": { "type": "RollingUpdate", "scheduledUpdate": null } }),
        )
        .await?;
    let told = async || lab.scontrol(&["show", "reservation"]);
    eventually("no reservation", SOON, told, |told: &String| !told.contains("SlurmOperatorMaint")).await?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a time to come has to know what now is")]
fn now() -> Timestamp {
    Timestamp::now()
}
