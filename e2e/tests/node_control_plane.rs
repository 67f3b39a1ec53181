//! A Slurm control plane made of real daemons, driven by the clients that people use.

use anyhow::{Context, Result, ensure};
use e2e::lab::{CLUSTER, Lab, NEEDED_CONF, STARTED, printed};
use e2e::process::scratch;
use e2e::stage::condition;
use e2e::{eventually, report};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use slinky_api::conditions::CONFIGURED;
use slinky_api::labels::CONTROLLER_ACTIVE;
use slinky_api::v1beta1::{Accounting, Controller, LoginSet, RestApi, Token};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The documents of [`CLUSTER`] that a slurmctld alone needs.
const KINDS_OF_A_CONTROLLER: [&str; 3] = ["Secret", "ConfigMap", "Controller"];
/// How long everything is watched doing nothing.
const IDLE: Duration = Duration::from_mins(2);
/// How long a change of configuration may take, from its end on.
const RECONFIGURED: Duration = Duration::from_secs(30);
/// How long changes wait for each other.
const DEBOUNCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_control_plane_serves_its_clients_rests_and_takes_a_new_key() -> Result<()> {
    let controllers =
        ["accounting-controller", "restapi-controller", "loginset-controller", "token-controller"];
    let lab = Lab::open("plane", &controllers).await?;
    let key = ssh_key(&lab)?;
    let begun = Instant::now();
    lab.apply(CLUSTER)?;
    lab.stage.edit::<LoginSet>("login", json!({ "rootSshAuthorizedKeys": key.public })).await?;
    all_ready(&lab).await?;
    report(format_args!("from nothing to a whole control plane: {:.0} s", begun.elapsed().as_secs_f64()));

    let ping = lab.scontrol(&["ping"])?;
    ensure!(ping.contains("slurm-controller-0 is UP"), "{ping}");
    let clusters = || {
        lab.exec("slurm-controller-0", "slurmctld", &["sacctmgr", "-nP", "show", "cluster", "format=cluster"])
    };
    let cluster = format!("{}_slurm", lab.stage.namespace());
    eventually(
        "the cluster is registered",
        STARTED,
        async || clusters(),
        |seen: &String| seen.trim() == cluster,
    )
    .await?;
    let token = token(&lab).await?;
    let answer = rest_ping(&lab, &token)?;
    ensure!(answer["pings"][0]["responding"] == true, "{answer}");
    let sinfo = eventually(
        "a login",
        STARTED,
        async || ssh(&lab, &key, "sinfo"),
        |seen: &String| seen.starts_with("PARTITION"),
    );
    report(format_args!("$ ssh root@login sinfo\n{}", sinfo.await?));

    idle(&lab).await?;
    rotate_the_signing_key(&lab, &token).await?;
    lose_the_database(&lab).await?;
    lab.stage.end().await
}

async fn all_ready(lab: &Lab) -> Result<()> {
    lab.ready::<Token>("admin").await?;
    lab.ready::<Accounting>("slurm").await?;
    lab.ready::<Controller>("slurm").await?;
    lab.ready::<RestApi>("slurm").await?;
    lab.ready::<LoginSet>("login").await?;
    Ok(())
}

/// Nothing is asked and nothing is written when nothing changes.
async fn idle(lab: &Lab) -> Result<()> {
    let still = async || {
        let before = lab.requests()?.len();
        sleep(Duration::from_secs(5)).await;
        Ok(lab.requests()?.len() - before)
    };
    eventually("quiet", STARTED, still, |requests| *requests == 0).await?;
    let before = lab.requests()?.len();
    sleep(IDLE).await;
    let requests = lab.requests()?.split_off(before);
    report(format_args!(
        "requests of five controllers besides watches in {} s: {}",
        IDLE.as_secs(),
        requests.len()
    ));
    ensure!(requests.is_empty(), "{requests:#?}");
    Ok(())
}

/// After a new signing key the Token is issued anew, the old one is worth nothing, and everything works.
async fn rotate_the_signing_key(lab: &Lab, old: &str) -> Result<()> {
    let before = uid(lab, "slurm-controller-0").await?;
    let keys = json!({ "stringData": { "jwt.key": "a-new-key-that-nobody-has-seen-in-any-repository" } });
    let params = PatchParams::default();
    lab.stage.api::<Secret>().patch("slurm-auth", &params, &Patch::Merge(keys)).await?;
    let new = eventually("a new token", STARTED, async || token(lab).await, |token| token != old).await?;
    let is_new = |uid: &String| *uid != before;
    eventually("slurmctld with the new key", STARTED, async || uid(lab, "slurm-controller-0").await, is_new)
        .await?;
    all_ready(lab).await?;
    let ping = async || rest_ping(lab, &new);
    eventually("the new token works", STARTED, ping, |answer| answer["pings"][0]["responding"] == true)
        .await?;
    let refused = rest_nodes(lab, old)?;
    ensure!(refused["errors"][0].is_object(), "the old token still works: {refused}");
    Ok(())
}

/// Without its database slurmdbd is not ready, which shows; it comes back by itself.
async fn lose_the_database(lab: &Lab) -> Result<()> {
    lab.pods().delete("mariadb", &kube::api::DeleteParams::default()).await?;
    let restart = lab.kubectl(&["delete", "pod", "slurm-accounting-0"]);
    printed(restart)?;
    let accounting = async || Ok(lab.stage.api::<Accounting>().get("slurm").await?);
    let is_told = |accounting: &Accounting| {
        condition(accounting, "Ready")
            .is_ok_and(|ready| ready.status == "False" && ready.message.contains("mariadb"))
    };
    let seen = eventually("that the database is down", STARTED, accounting, is_told).await?;
    report(format_args!("database down: {}", condition(&seen, "Ready")?.message));
    lab.apply(CLUSTER)?;
    lab.ready::<Accounting>("slurm").await?;
    Ok(())
}

struct SshKey {
    file: String,
    public: String,
}

fn ssh_key(lab: &Lab) -> Result<SshKey> {
    let file = scratch(&format!("{}-key", lab.stage.namespace()))?.to_str().context("a path")?.to_owned();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", &file]);
    printed(keygen)?;
    let public = std::fs::read_to_string(format!("{file}.pub"))?;
    Ok(SshKey { file, public })
}

fn ssh(lab: &Lab, key: &SshKey, command: &str) -> Result<String> {
    let mut ssh = Command::new("ssh");
    ssh.args([
        "-i",
        &key.file,
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    ])
    .arg(format!("root@login.{}", lab.stage.namespace()))
    .arg(command);
    printed(ssh)
}

async fn token(lab: &Lab) -> Result<String> {
    let secret = lab.stage.api::<Secret>().get("admin-jwt-slurm").await?;
    let data = secret.data.context("an empty Secret")?;
    Ok(String::from_utf8(data["SLURM_JWT"].0.clone())?)
}

fn rest_ping(lab: &Lab, token: &str) -> Result<Value> {
    curl(lab, token, "ping/")
}

fn rest_nodes(lab: &Lab, token: &str) -> Result<Value> {
    curl(lab, token, "nodes/")
}

fn curl(lab: &Lab, token: &str, path: &str) -> Result<Value> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "20", "--header"])
        .arg(format!("X-SLURM-USER-TOKEN: {token}"))
        .arg(format!("http://slurm-restapi.{}:6820/slurm/v0.0.44/{path}", lab.stage.namespace()));
    Ok(serde_json::from_str(&printed(curl)?)?)
}

async fn uid(lab: &Lab, pod: &str) -> Result<String> {
    lab.pods().get(pod).await?.uid().context("a pod without uid")
}

/// The Controller alone, with other fields in its spec, once it is ready.
async fn controller_alone(lab: &Lab, spec: Value) -> Result<Controller> {
    put_controller_alone(lab, &spec)?;
    lab.ready("slurm").await
}

/// Why slurmctld's container does not run.
async fn waiting(lab: &Lab) -> Result<Option<String>> {
    let pod = lab.pods().get("slurm-controller-0").await?;
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    Ok(statuses.into_iter().find_map(|status| status.state?.waiting?.reason))
}

/// Applies what a slurmctld alone needs, with other fields in its spec from the start; `null` takes a field away.
fn put_controller_alone(lab: &Lab, spec: &Value) -> Result<()> {
    lab.apply_part(&KINDS_OF_A_CONTROLLER, spec)
}

/// Sets the text that is appended to slurm.conf, keeping what this machine needs.
async fn configure(lab: &Lab, extra: &str) -> Result<Controller> {
    lab.stage.edit("slurm", json!({ "extraConf": format!("{NEEDED_CONF}{extra}") })).await
}

fn min_job_age(lab: &Lab) -> Result<String> {
    let config = lab.scontrol(&["show", "config"])?;
    let line = config.lines().find(|line| line.starts_with("MinJobAge")).context("no MinJobAge")?;
    Ok(line.split('=').nth(1).unwrap_or_default().trim().to_owned())
}

/// Waits for what became of the configuration, and gives what is said about it.
async fn configured(lab: &Lab, reason: &str, message: &str) -> Result<String> {
    let look = async || condition(&lab.stage.api::<Controller>().get("slurm").await?, CONFIGURED);
    let says = |condition: &Condition| condition.reason == reason && condition.message.contains(message);
    Ok(eventually(reason, STARTED, look, says).await?.message)
}

/// UID of slurmctld's pod, and how often its container was restarted.
async fn identity(lab: &Lab) -> Result<(String, i32)> {
    let pod = lab.pods().get("slurm-controller-0").await?;
    let statuses = pod.status.clone().unwrap_or_default().container_statuses.unwrap_or_default();
    Ok((pod.uid().context("a pod without uid")?, statuses.iter().map(|status| status.restart_count).sum()))
}

#[tokio::test]
async fn a_configuration_changes_in_place_and_a_broken_one_changes_nothing() -> Result<()> {
    let lab = Lab::open("inplace", &[]).await?;
    controller_alone(&lab, json!({})).await?;
    let before = identity(&lab).await?;

    // Edits that follow each other are one change.
    configure(&lab, "MinJobAge=111\n").await?;
    configure(&lab, "MinJobAge=222\n").await?;
    let edited = Instant::now();
    configure(&lab, "MinJobAge=333\n").await?;
    let changed = async || min_job_age(&lab);
    eventually("the new value", DEBOUNCE + RECONFIGURED, changed, |age: &String| age == "333 sec").await?;
    report(format_args!(
        "a change of extraConf is in force after {:.1} s, the debounce included",
        edited.elapsed().as_secs_f64()
    ));
    let message = configured(&lab, "Applied", "").await?;
    report(message);
    let count = reconfigurations(&lab)?;
    ensure!(count == 1, "{count} reconfigurations for edits that followed each other");
    ensure!(identity(&lab).await? == before, "slurmctld was restarted");

    let in_force = lab.stage.api::<ConfigMap>().get("slurm-config").await?.data;
    for (broken, culprit) in
        [("NoSuchOption=1", "NoSuchOption"), ("SchedulerType=sched/nonsense", "sched/nonsense")]
    {
        configure(&lab, &format!("MinJobAge=444\n{broken}\n")).await?;
        report(format_args!("{}", configured(&lab, "Refused", culprit).await?));
        lab.stage.ready::<Controller>("slurm", "ConfigRefused").await?;
        ensure!(lab.stage.api::<ConfigMap>().get("slurm-config").await?.data == in_force, "it was written");
    }
    lab.stage.event("slurm", "Refused").await?;
    ensure!(min_job_age(&lab)? == "333 sec" && identity(&lab).await? == before, "slurmctld was touched");

    configure(&lab, "MinJobAge=555\n").await?;
    eventually(
        "the mended value",
        DEBOUNCE + RECONFIGURED,
        async || min_job_age(&lab),
        |age: &String| age == "555 sec",
    )
    .await?;
    lab.ready::<Controller>("slurm").await?;
    edit_of_a_referenced_file_is_read(&lab).await?;
    ensure!(identity(&lab).await? == before, "slurmctld was restarted");
    lab.stage.end().await
}

/// How often slurmctld read its configuration anew.
fn reconfigurations(lab: &Lab) -> Result<usize> {
    let log = printed(lab.kubectl(&["logs", "slurm-controller-0", "--container", "reconfigure"]))?;
    Ok(log.matches("Reconfigured to").count())
}

async fn edit_of_a_referenced_file_is_read(lab: &Lab) -> Result<()> {
    let before = reconfigurations(lab)?;
    let change = json!({ "data": { "plugstack.conf": "# nothing yet\n" } });
    lab.stage.api::<ConfigMap>().patch("slurm-files", &PatchParams::default(), &Patch::Merge(change)).await?;
    let read = async || reconfigurations(lab);
    eventually("the file is read", DEBOUNCE + RECONFIGURED, read, |count| *count == before + 1).await?;
    configured(lab, "Applied", "").await?;
    Ok(())
}

#[tokio::test]
async fn without_reconfiguration_in_place_a_change_is_one_restart() -> Result<()> {
    let lab = Lab::open("restart", &[]).await?;
    let image =
        |tag: &str| json!({ "slurmctld": { "image": format!("slurm-operator.test/slurmctld:{tag}") } });
    let mistaken =
        json!({ "inplaceReconfigure": false, "slurmctld": { "image": "slurm-operator.test/none:0" } });
    put_controller_alone(&lab, &mistaken)?;
    eventually(
        "a pod that does not start",
        STARTED,
        async || waiting(&lab).await,
        |reason| reason.as_deref().is_some_and(|reason| reason.contains("Image")),
    )
    .await?;
    lab.stage.edit::<Controller>("slurm", image("26.05")).await?;
    lab.ready::<Controller>("slurm").await.context("after the image was mended")?;
    let (before, pod) = (generation(&lab).await?, identity(&lab).await?);
    configure(&lab, "MinJobAge=444\nNoSuchOption=1\n").await?;
    configured(&lab, "Refused", "NoSuchOption").await?;
    ensure!(
        generation(&lab).await? == before && identity(&lab).await? == pod,
        "a broken configuration restarted slurmctld"
    );
    configure(&lab, "MinJobAge=666\n").await?;
    eventually("the new value", STARTED, async || min_job_age(&lab), |age: &String| age == "666 sec").await?;
    lab.ready::<Controller>("slurm").await?;
    let after = identity(&lab).await?;
    ensure!(after.0 != pod.0 && after.1 == 0, "{after:?} after {pod:?}");
    ensure!(
        generation(&lab).await? == before + 1,
        "the StatefulSet changed {} times",
        generation(&lab).await? - before
    );
    lab.stage.end().await
}

async fn generation(lab: &Lab) -> Result<i64> {
    let set = lab.stage.api::<StatefulSet>().get("slurm-controller").await?;
    set.metadata.generation.context("no generation")
}

#[tokio::test]
async fn a_standby_takes_over_and_the_queue_survives() -> Result<()> {
    let lab = Lab::open("standby", &[]).await?;
    let nodes: Api<Node> = Api::all(lab.stage.client().clone());
    // Daemons of one cluster keep off each other's host, and this machine is one: its name is not told any more.
    let nameless = json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } });
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(nameless)).await?;
    lab.apply(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: { name: state }\n\
         spec: { accessModes: [ReadWriteMany], resources: { requests: { storage: 1Gi } } }\n",
    )?;
    let spec = json!({
        "ha": { "enabled": true, "backups": 1 },
        "persistence": { "enabled": true, "existingClaim": "state" },
        "extraConf": "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
                      SlurmctldTimeout=10\nNodeName=ghost State=FUTURE\nPartitionName=all Nodes=ghost Default=YES\n",
    });
    controller_alone(&lab, spec).await?;
    eventually(
        "the primary is active",
        STARTED,
        async || active(&lab).await,
        |pod| *pod == ["slurm-controller-0"],
    )
    .await?;
    let submitted = lab.exec("slurm-controller-0", "slurmctld", &["sbatch", "--parsable", "--wrap=true"])?;
    let job = submitted.trim().to_owned();

    let killed = Instant::now();
    // Its container is started again, so the daemon is killed each time, until everybody has seen that it is gone.
    let kill = || kill_slurmctld(&lab, "slurm-controller-0").unwrap_or_default();
    let follows = async || {
        kill();
        active(&lab).await
    };
    eventually("the Service follows", STARTED, follows, |pod| *pod == ["slurm-controller-1"]).await?;
    let followed = killed.elapsed();
    let queue = async || {
        kill();
        lab.exec("slurm-controller-1", "slurmctld", &["squeue", "-h", "-o", "%i"])
    };
    let is_queued = |queue: &String| queue.lines().any(|line| line == job);
    eventually("the job is in the queue", STARTED, queue, is_queued).await?;
    let answered = killed.elapsed();
    let ping = lab.exec("slurm-controller-1", "slurmctld", &["scontrol", "ping"])?;
    ensure!(ping.contains("slurm-controller-1 is UP"), "{ping}");
    report(format_args!(
        "failover with SlurmctldTimeout=10: the Service follows after {:.1} s, the queue is served after {:.1} s\n{ping}",
        followed.as_secs_f64(),
        answered.as_secs_f64()
    ));

    let back = Instant::now();
    eventually(
        "the primary is active again",
        STARTED,
        async || active(&lab).await,
        |pod| *pod == ["slurm-controller-0"],
    )
    .await?;
    report(format_args!("failback: the Service follows after {:.1} s", back.elapsed().as_secs_f64()));
    let queue = async || lab.scontrol(&["show", "job", &job]);
    eventually("the job is still there", STARTED, queue, |seen: &String| {
        seen.contains(&format!("JobId={job}"))
    })
    .await?;
    lab.stage.end().await
}

/// `kill -9` for slurmctld in a pod.
fn kill_slurmctld(lab: &Lab, pod: &str) -> Result<String> {
    let kill =
        "for p in /proc/[0-9]*; do case $(cat $p/comm) in slurmctld*) kill -9 ${p#/proc/} ;; esac; done";
    lab.exec(pod, "slurmctld", &["sh", "-c", kill])
}

/// The pods that the client Service leads to.
async fn active(lab: &Lab) -> Result<Vec<String>> {
    let pods = lab.pods().list(&kube::api::ListParams::default().labels(CONTROLLER_ACTIVE)).await?;
    Ok(pods.items.iter().map(ResourceExt::name_any).collect())
}
