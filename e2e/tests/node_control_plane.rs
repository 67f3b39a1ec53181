//! A Slurm control plane of real daemons, tested with the clients that users have.

use anyhow::{Context, Result, ensure};
use e2e::process::scratch;
use e2e::slurm_cluster::{CLUSTER, CONTROLLER_POD, REQUIRED_CONF, STARTED, SlurmCluster, output_of};
use e2e::test_env::condition;
use e2e::{eventually, report};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ResourceQuota, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use slinky_api::conditions::{ACTIVE_REPORTED, CONFIGURED};
use slinky_api::labels::CONTROLLER_ACTIVE;
use slinky_api::labels::annotations::ACCEPTED_CONFIG;
use slinky_api::v1beta1::{Accounting, Controller, LoginSet, RestApi, Token};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The kinds of [`CLUSTER`] that a slurmctld needs.
const CONTROLLER_KINDS: [&str; 3] = ["Secret", "ConfigMap", "Controller"];
/// How long idle controllers are watched for requests.
const IDLE: Duration = Duration::from_mins(2);
/// How long a change of the configuration may take after the debounce.
const RECONFIGURED: Duration = Duration::from_secs(30);
/// The `ResourceQuota` that refuses new pods.
const NO_PODS: &str = "no-pods";
/// How long the controller-controller waits for further changes.
const DEBOUNCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn control_plane_serves_clients_is_idle_and_survives_key_rotation_and_database_loss() -> Result<()> {
    let controllers =
        ["accounting-controller", "restapi-controller", "loginset-controller", "token-controller"];
    let cluster = SlurmCluster::start("control-plane", &controllers).await?;
    let key = ssh_key(&cluster)?;
    let begun = Instant::now();
    cluster.apply(CLUSTER)?;
    cluster.env.patch_spec::<LoginSet>("login", json!({ "rootSshAuthorizedKeys": key.public })).await?;
    wait_until_all_ready(&cluster).await?;
    report(format_args!("start of a control plane: {:.0} s", begun.elapsed().as_secs_f64()));

    let ping = cluster.scontrol(&["ping"])?;
    ensure!(ping.contains("slurm-controller-0 is UP"), "{ping}");
    let clusters = || cluster.exec_in_slurmctld(&["sacctmgr", "-nP", "show", "cluster", "format=cluster"]);
    let name = format!("{}_slurm", cluster.env.namespace());
    let is_registered = |listed: &String| listed.trim() == name;
    eventually("a registered cluster", STARTED, async || clusters(), is_registered).await?;
    let token = token(&cluster).await?;
    let answer = rest_ping(&cluster, &token)?;
    ensure!(answer["pings"][0]["responding"] == true, "{answer}");
    let lists_partitions = |listed: &String| listed.starts_with("PARTITION");
    let sinfo =
        eventually("a login", STARTED, async || ssh(&cluster, &key, "sinfo"), lists_partitions).await?;
    report(format_args!("$ ssh root@login sinfo\n{sinfo}"));

    weights_of_gpus_are_accepted(&cluster).await?;
    idle_controllers_send_no_requests(&cluster).await?;
    rotated_signing_key_replaces_the_token(&cluster, &token).await?;
    lost_database_is_reported(&cluster).await?;
    cluster.env.tear_down().await
}

async fn wait_until_all_ready(cluster: &SlurmCluster) -> Result<()> {
    cluster.wait_until_ready::<Token>("admin").await?;
    cluster.wait_until_ready::<Accounting>("slurm").await?;
    cluster.wait_until_ready::<Controller>("slurm").await?;
    cluster.wait_until_ready::<RestApi>("slurm").await?;
    cluster.wait_until_ready::<LoginSet>("login").await?;
    Ok(())
}

/// The check has no slurmdbd, which defines the TRES of GPUs.
async fn weights_of_gpus_are_accepted(cluster: &SlurmCluster) -> Result<()> {
    let weights =
        "GresTypes=gpu\nAccountingStorageTRES=gres/gpu\nPriorityWeightTRES=CPU=1000,GRES/gpu=2000\n";
    let edited = Instant::now();
    configure(cluster, weights).await?;
    let config = async || cluster.scontrol(&["show", "config"]);
    let is_applied = |config: &String| config.contains("GRES/gpu=2000");
    eventually("weights of GPUs", DEBOUNCE + RECONFIGURED, config, is_applied).await?;
    report(format_args!("weights of GPUs take effect after {:.1} s", edited.elapsed().as_secs_f64()));
    wait_for_configured(cluster, "Applied", "").await?;
    Ok(())
}

async fn idle_controllers_send_no_requests(cluster: &SlurmCluster) -> Result<()> {
    let new_requests = async || {
        let before = cluster.requests()?.len();
        sleep(Duration::from_secs(5)).await;
        Ok(cluster.requests()?.len() - before)
    };
    eventually("no more requests", STARTED, new_requests, |count| *count == 0).await?;
    let before = cluster.requests()?.len();
    sleep(IDLE).await;
    let requests = cluster.requests()?.split_off(before);
    report(format_args!(
        "requests of five idle controllers in {} s, without watches: {}",
        IDLE.as_secs(),
        requests.len()
    ));
    ensure!(requests.is_empty(), "{requests:#?}");
    Ok(())
}

/// A new signing key issues a new token, invalidates the old one and restarts the daemons.
async fn rotated_signing_key_replaces_the_token(cluster: &SlurmCluster, old: &str) -> Result<()> {
    let (before, _) = cluster.controller_pod().await?;
    let keys = json!({ "stringData": { "jwt.key": "a-new-signing-key-for-the-tokens-of-this-cluster" } });
    cluster.env.patch::<Secret>("slurm-auth", keys).await?;
    let new = eventually("a new token", STARTED, async || token(cluster).await, |token| token != old).await?;
    let get = async || Ok(cluster.controller_pod().await?.0);
    eventually("slurmctld with the new key", STARTED, get, |pod| pod.uid() != before.uid()).await?;
    wait_until_all_ready(cluster).await?;
    let ping = async || rest_ping(cluster, &new);
    eventually("the new token works", STARTED, ping, |answer| answer["pings"][0]["responding"] == true)
        .await?;
    let refused = rest_nodes(cluster, old)?;
    ensure!(refused["errors"][0].is_object(), "the old token still works: {refused}");
    Ok(())
}

/// Without its database slurmdbd is reported as not ready, and recovers once the database is back.
async fn lost_database_is_reported(cluster: &SlurmCluster) -> Result<()> {
    cluster.env.delete::<Pod>("mariadb").await?;
    output_of(cluster.kubectl(&["delete", "pod", "slurm-accounting-0"]))?;
    let get = async || cluster.env.get::<Accounting>("slurm").await;
    let is_reported = |accounting: &Accounting| {
        condition(accounting, "Ready")
            .is_ok_and(|ready| ready.status == "False" && ready.message.contains("mariadb"))
    };
    let accounting = eventually("a report of the lost database", STARTED, get, is_reported).await?;
    report(format_args!("database down: {}", condition(&accounting, "Ready")?.message));
    cluster.apply(CLUSTER)?;
    cluster.wait_until_ready::<Accounting>("slurm").await?;
    Ok(())
}

struct SshKey {
    file: String,
    public: String,
}

fn ssh_key(cluster: &SlurmCluster) -> Result<SshKey> {
    let file = scratch(&format!("{}-key", cluster.env.namespace()))?.to_str().context("a path")?.to_owned();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", &file]);
    output_of(keygen)?;
    let public = std::fs::read_to_string(format!("{file}.pub"))?;
    Ok(SshKey { file, public })
}

fn ssh(cluster: &SlurmCluster, key: &SshKey, command: &str) -> Result<String> {
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
    .arg(format!("root@login.{}", cluster.env.namespace()))
    .arg(command);
    output_of(ssh)
}

async fn token(cluster: &SlurmCluster) -> Result<String> {
    let secret = cluster.env.get::<Secret>("admin-jwt-slurm").await?;
    let data = secret.data.context("an empty Secret")?;
    Ok(String::from_utf8(data["SLURM_JWT"].0.clone())?)
}

fn rest_ping(cluster: &SlurmCluster, token: &str) -> Result<Value> {
    curl(cluster, token, "ping/")
}

fn rest_nodes(cluster: &SlurmCluster, token: &str) -> Result<Value> {
    curl(cluster, token, "nodes/")
}

fn curl(cluster: &SlurmCluster, token: &str, path: &str) -> Result<Value> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "20", "--header"])
        .arg(format!("X-SLURM-USER-TOKEN: {token}"))
        .arg(format!("http://slurm-restapi.{}:6820/slurm/v0.0.44/{path}", cluster.env.namespace()));
    Ok(serde_json::from_str(&output_of(curl)?)?)
}

/// Applies a Controller without accounting, with fields of its spec replaced, and waits until it is ready.
async fn start_controller(cluster: &SlurmCluster, spec: Value) -> Result<Controller> {
    cluster.apply_kinds(&CONTROLLER_KINDS, &spec)?;
    cluster.wait_until_ready("slurm").await
}

/// Why a container beside slurmctld, or its own, waits.
async fn waiting_reason(cluster: &SlurmCluster) -> Result<Option<String>> {
    let (_, statuses) = cluster.controller_pod().await?;
    Ok(statuses.into_iter().find_map(|status| status.state?.waiting?.reason))
}

/// Sets `extraConf` to the required lines and `extra`.
async fn configure(cluster: &SlurmCluster, extra: &str) -> Result<Controller> {
    cluster.env.patch_spec("slurm", json!({ "extraConf": format!("{REQUIRED_CONF}{extra}") })).await
}

fn min_job_age(cluster: &SlurmCluster) -> Result<String> {
    let config = cluster.scontrol(&["show", "config"])?;
    let line = config.lines().find(|line| line.starts_with("MinJobAge")).context("no MinJobAge")?;
    Ok(line.split('=').nth(1).unwrap_or_default().trim().to_owned())
}

async fn wait_for_min_job_age(cluster: &SlurmCluster, expected: &str, timeout: Duration) -> Result<()> {
    let what = format!("MinJobAge = {expected}");
    eventually(&what, timeout, async || min_job_age(cluster), |age: &String| age == expected).await?;
    Ok(())
}

/// Waits until the condition Configured has this reason and a message that contains `message`; returns the message.
async fn wait_for_configured(cluster: &SlurmCluster, reason: &str, message: &str) -> Result<String> {
    let get = async || condition(&cluster.env.get::<Controller>("slurm").await?, CONFIGURED);
    let is_expected = |it: &Condition| it.reason == reason && it.message.contains(message);
    Ok(eventually(reason, STARTED, get, is_expected).await?.message)
}

/// UID of slurmctld's pod, and the number of restarts of its containers.
async fn identity(cluster: &SlurmCluster) -> Result<(String, i32)> {
    let (pod, _) = cluster.controller_pod().await?;
    Ok((pod.uid().context("a pod without uid")?, cluster.controller_restarts().await?))
}

#[tokio::test]
async fn valid_configuration_is_applied_in_place_and_invalid_one_is_rejected() -> Result<()> {
    let cluster = SlurmCluster::start("inplace", &[]).await?;
    start_controller(&cluster, json!({})).await?;
    let before = identity(&cluster).await?;

    // Edits in quick succession are one change.
    configure(&cluster, "MinJobAge=111\n").await?;
    configure(&cluster, "MinJobAge=222\n").await?;
    let edited = Instant::now();
    configure(&cluster, "MinJobAge=333\n").await?;
    wait_for_min_job_age(&cluster, "333 sec", DEBOUNCE + RECONFIGURED).await?;
    report(format_args!(
        "a change of extraConf takes effect after {:.1} s, including the debounce",
        edited.elapsed().as_secs_f64()
    ));
    let message = wait_for_configured(&cluster, "Applied", "").await?;
    report(message);
    let count = reconfigurations(&cluster, CONTROLLER_POD)?;
    ensure!(count == 1, "{count} reconfigurations for one change");
    ensure!(identity(&cluster).await? == before, "slurmctld was restarted");

    let before_rejection = cluster.env.get::<ConfigMap>("slurm-config").await?.data;
    for (broken, culprit) in
        // slurmctld loads the last of these plugins after it has logged that it runs.
        [
            ("NoSuchOption=1", "NoSuchOption"),
            ("SchedulerType=sched/nonsense", "sched/nonsense"),
            ("SlurmctldDebug=error\nMCSPlugin=mcs/nonsense", "mcs/nonsense"),
        ]
    {
        configure(&cluster, &format!("MinJobAge=444\n{broken}\n")).await?;
        report(format_args!("{}", wait_for_configured(&cluster, "Refused", culprit).await?));
        cluster.env.wait_for_ready_reason::<Controller>("slurm", "ConfigRefused").await?;
        ensure!(
            cluster.env.get::<ConfigMap>("slurm-config").await?.data == before_rejection,
            "the rejected configuration was written"
        );
    }
    cluster.env.wait_for_event("slurm", "Refused").await?;
    ensure!(
        min_job_age(&cluster)? == "333 sec" && identity(&cluster).await? == before,
        "slurmctld was reconfigured or restarted"
    );

    configure(&cluster, "MinJobAge=555\nSlurmctldDebug=error\n").await?;
    wait_for_min_job_age(&cluster, "555 sec", DEBOUNCE + RECONFIGURED).await?;
    cluster.wait_until_ready::<Controller>("slurm").await?;
    changed_config_file_is_applied_in_place(&cluster).await?;
    reverted_config_file_is_applied_after_a_failed_reconfigure(&cluster).await?;
    restarted_reconfigure_container_knows_what_slurmctld_runs_with(&cluster).await?;
    ensure!(identity(&cluster).await? == before, "slurmctld was restarted");
    cluster.env.tear_down().await
}

fn reconfigure_log(cluster: &SlurmCluster, pod: &str) -> Result<String> {
    output_of(cluster.kubectl(&["logs", pod, "--container", "reconfigure"]))
}

/// How often slurmctld was reconfigured in place from a pod.
fn reconfigurations(cluster: &SlurmCluster, pod: &str) -> Result<usize> {
    Ok(reconfigure_log(cluster, pod)?.matches("Reconfigured to").count())
}

async fn changed_config_file_is_applied_in_place(cluster: &SlurmCluster) -> Result<()> {
    let before = reconfigurations(cluster, CONTROLLER_POD)?;
    let change = json!({ "data": { "plugstack.conf": "# nothing yet\n" } });
    cluster.env.patch::<ConfigMap>("slurm-files", change).await?;
    let count = async || reconfigurations(cluster, CONTROLLER_POD);
    eventually("a reconfiguration", DEBOUNCE + RECONFIGURED, count, |count| *count == before + 1).await?;
    wait_for_configured(cluster, "Applied", "").await?;
    Ok(())
}

/// A file of the user with which no slurmctld starts.
const BROKEN_TOPOLOGY: &str = "[this is: no YAML";

/// Sets or removes the user's topology.yaml.
async fn edit_topology(cluster: &SlurmCluster, text: Option<&str>) -> Result<()> {
    cluster.env.patch::<ConfigMap>("slurm-files", json!({ "data": { "topology.yaml": text } })).await?;
    Ok(())
}

/// Breaks the user's topology.yaml and waits for the refusal; returns the name of the refused configuration.
async fn refused_topology(cluster: &SlurmCluster) -> Result<String> {
    let edited = Instant::now();
    edit_topology(cluster, Some(BROKEN_TOPOLOGY)).await?;
    let message = wait_for_configured(cluster, "Refused", "topology").await?;
    report(format_args!("a broken file is refused after {:.1} s: {message}", edited.elapsed().as_secs_f64()));
    Ok(message.split_whitespace().nth(3).context("no configuration")?.to_owned())
}

/// Lets a configuration through although the check refused it.
async fn accept(cluster: &SlurmCluster, config: &str) -> Result<()> {
    let annotations = json!({ "metadata": { "annotations": { ACCEPTED_CONFIG: config } } });
    cluster.env.patch::<Controller>("slurm", annotations).await?;
    Ok(())
}

async fn reverted_config_file_is_applied_after_a_failed_reconfigure(cluster: &SlurmCluster) -> Result<()> {
    let refused = refused_topology(cluster).await?;
    accept(cluster, &refused).await?;
    wait_for_configured(cluster, "ReconfigureFailed", &refused).await?;
    ensure!(min_job_age(cluster)? == "555 sec", "slurmctld does not run on");
    let reverted = Instant::now();
    edit_topology(cluster, None).await?;
    wait_for_configured(cluster, "Applied", "").await?;
    report(format_args!("a revert is applied after {:.1} s", reverted.elapsed().as_secs_f64()));
    Ok(())
}

async fn restarted_reconfigure_container_knows_what_slurmctld_runs_with(
    cluster: &SlurmCluster,
) -> Result<()> {
    let log = || reconfigure_log(cluster, CONTROLLER_POD);
    let before = log()?;
    let (_, config) = before.trim_end().rsplit_once("Reconfigured to ").context("no reconfiguration")?;
    cluster.exec(CONTROLLER_POD, "reconfigure", &["kill", "1"])?;
    // Within the second in which slurmctld read the files, the container cannot tell, and reconfigures once more.
    let is_known = |log: &String| *log != before && log.trim_end().ends_with(config);
    eventually("a restarted container", STARTED, async || log(), is_known).await?;
    Ok(())
}

#[tokio::test]
async fn edited_file_that_would_end_slurmctld_never_reaches_it_unless_the_user_insists() -> Result<()> {
    let cluster = SlurmCluster::start("userfile", &[]).await?;
    start_controller(&cluster, json!({ "inplaceReconfigure": false })).await?;
    let pod = identity(&cluster).await?.0;
    let refused = refused_topology(&cluster).await?;
    kill_slurmctld(&cluster, CONTROLLER_POD).unwrap_or_default();
    let restarts = async || cluster.controller_restarts().await;
    eventually("a restart", STARTED, restarts, |count| *count > 0).await?;
    let ping = async || cluster.scontrol(&["ping"]);
    eventually("slurmctld after a restart", STARTED, ping, |ping| ping.contains("is UP")).await?;
    ensure!(identity(&cluster).await?.0 == pod, "the pod was replaced");

    let accepted = Instant::now();
    accept(&cluster, &refused).await?;
    let get = async || cluster.env.get::<Controller>("slurm").await;
    let is_crashing = |controller: &Controller| {
        condition(controller, "Degraded").is_ok_and(|degraded| degraded.reason == "CrashLoopBackOff")
    };
    let controller = eventually("a crash loop", STARTED, get, is_crashing).await?;
    let message = condition(&controller, "Degraded")?.message;
    report(format_args!("crash loop reported after {:.1} s: {message}", accepted.elapsed().as_secs_f64()));
    ensure!(message.contains("fatal: Failed to initialize topology plugin"), "{message}");

    let reverted = Instant::now();
    edit_topology(&cluster, None).await?;
    cluster.wait_until_ready::<Controller>("slurm").await?;
    report(format_args!("slurmctld is ready {:.1} s after the revert", reverted.elapsed().as_secs_f64()));
    cluster.env.tear_down().await
}

#[tokio::test]
async fn without_inplace_reconfigure_a_change_restarts_slurmctld_once() -> Result<()> {
    let cluster = SlurmCluster::start("restart", &[]).await?;
    let image =
        |tag: &str| json!({ "slurmctld": { "image": format!("slurm-operator.test/slurmctld:{tag}") } });
    let missing_image =
        json!({ "inplaceReconfigure": false, "slurmctld": { "image": "slurm-operator.test/none:0" } });
    cluster.apply_kinds(&CONTROLLER_KINDS, &missing_image)?;
    let is_image_missing =
        |reason: &Option<String>| reason.as_deref().is_some_and(|reason| reason.contains("Image"));
    eventually("a missing image", STARTED, async || waiting_reason(&cluster).await, is_image_missing).await?;
    cluster.env.patch_spec::<Controller>("slurm", image("26.05")).await?;
    cluster.wait_until_ready::<Controller>("slurm").await.context("with an existing image")?;
    let (before, pod) = (generation(&cluster).await?, identity(&cluster).await?);
    configure(&cluster, "MinJobAge=444\nNoSuchOption=1\n").await?;
    wait_for_configured(&cluster, "Refused", "NoSuchOption").await?;
    ensure!(
        generation(&cluster).await? == before && identity(&cluster).await? == pod,
        "a broken configuration restarted slurmctld"
    );
    configure(&cluster, "MinJobAge=666\n").await?;
    wait_for_min_job_age(&cluster, "666 sec", STARTED).await?;
    cluster.wait_until_ready::<Controller>("slurm").await?;
    let after = identity(&cluster).await?;
    ensure!(after.0 != pod.0 && after.1 == 0, "{after:?} after {pod:?}");
    ensure!(
        generation(&cluster).await? == before + 1,
        "the StatefulSet changed {} times",
        generation(&cluster).await? - before
    );
    cluster.env.tear_down().await
}

async fn generation(cluster: &SlurmCluster) -> Result<i64> {
    let set = cluster.env.get::<StatefulSet>("slurm-controller").await?;
    set.metadata.generation.context("no generation")
}

#[tokio::test]
async fn standby_takes_over_with_the_job_queue() -> Result<()> {
    let cluster = SlurmCluster::start("standby", &[]).await?;
    let nodes: Api<Node> = Api::all(cluster.env.client().clone());
    // slurmctlds of a cluster never share a host name, and this cluster has one node: without the label the
    // anti-affinity does not apply.
    let without_hostname = json!({ "metadata": { "labels": { "kubernetes.io/hostname": null } } });
    nodes.patch("node-0", &PatchParams::default(), &Patch::Merge(without_hostname)).await?;
    cluster.apply(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: { name: state }\n\
         spec: { accessModes: [ReadWriteMany], resources: { requests: { storage: 1Gi } } }\n",
    )?;
    let extra_conf =
        "SlurmctldTimeout=10\nNodeName=ghost State=FUTURE\nPartitionName=all Nodes=ghost Default=YES\n";
    let spec = json!({
        "ha": { "enabled": true, "backups": 1 },
        "persistence": { "enabled": true, "existingClaim": "state" },
        "extraConf": format!("{REQUIRED_CONF}{extra_conf}"),
    });
    start_controller(&cluster, spec).await?;
    wait_for_active(&cluster, CONTROLLER_POD).await?;
    only_the_active_pod_reconfigures(&cluster, extra_conf).await?;
    let submitted = cluster.exec_in_slurmctld(&["sbatch", "--parsable", "--wrap=true"])?;
    let job = submitted.trim().to_owned();

    let killed = Instant::now();
    lose_primary(&cluster).await?;
    wait_for_active(&cluster, "slurm-controller-1").await?;
    let followed = killed.elapsed();
    let queue = async || cluster.exec("slurm-controller-1", "slurmctld", &["squeue", "-h", "-o", "%i"]);
    let is_queued = |queue: &String| queue.lines().any(|line| line == job);
    eventually("a queued job", STARTED, queue, is_queued).await?;
    let answered = killed.elapsed();
    let ping = cluster.exec("slurm-controller-1", "slurmctld", &["scontrol", "ping"])?;
    ensure!(ping.contains("slurm-controller-1 is UP"), "{ping}");
    report(format_args!(
        "failover with SlurmctldTimeout=10: the Service switches after {:.1} s, the queue is served after {:.1} s\n{ping}",
        followed.as_secs_f64(),
        answered.as_secs_f64()
    ));

    let back = Instant::now();
    cluster.env.delete::<ResourceQuota>(NO_PODS).await?;
    wait_for_active(&cluster, CONTROLLER_POD).await?;
    report(format_args!("failback: the Service switches after {:.1} s", back.elapsed().as_secs_f64()));
    let show = async || cluster.scontrol(&["show", "job", &job]);
    let is_kept = |shown: &String| shown.contains(&format!("JobId={job}"));
    eventually("the job after the failback", STARTED, show, is_kept).await?;
    readiness_decides_where_the_operator_cannot_ask(&cluster).await?;
    cluster.env.tear_down().await
}

/// Kills the first slurmctld, and has the API server refuse the pod that replaces it: a daemon that restarts takes control
/// back within a second, and one that is killed again and again meanwhile may leave the standby no state to take over.
async fn lose_primary(cluster: &SlurmCluster) -> Result<()> {
    cluster.env.apply::<ResourceQuota>(NO_PODS, json!({ "spec": { "hard": { "pods": "0" } } })).await?;
    // The container ends with its first process, and so does the command that kills it.
    kill_slurmctld(cluster, CONTROLLER_POD).unwrap_or_default();
    cluster.env.delete::<Pod>(CONTROLLER_POD).await
}

/// One change is one reconfigure, although the files of both pods change.
async fn only_the_active_pod_reconfigures(cluster: &SlurmCluster, extra_conf: &str) -> Result<()> {
    const STANDBY: &str = "slurm-controller-1";
    let waits = || Ok(reconfigure_log(cluster, STANDBY)?.matches("Not reconfiguring to").count());
    let waited: usize = waits()?;
    configure(cluster, &format!("{extra_conf}MinJobAge=77\n")).await?;
    wait_for_min_job_age(cluster, "77 sec", DEBOUNCE + RECONFIGURED).await?;
    let seen = async || waits();
    eventually("a standby that saw the change", RECONFIGURED, seen, |count| *count > waited).await?;
    let counts = [reconfigurations(cluster, CONTROLLER_POD)?, reconfigurations(cluster, STANDBY)?];
    ensure!(counts == [1, 0], "reconfigurations from each pod: {counts:?}");
    Ok(())
}

/// Like a `NetworkPolicy`, drops the operator's requests to slurmctld; those of the kubelet have another path. Undone when it
/// goes out of scope.
struct Blocked(Vec<String>);

impl Blocked {
    fn set(&self, command: &str) -> Result<()> {
        for address in &self.0 {
            let mut iptables = Command::new("iptables");
            iptables.args(["-w", command, "OUTPUT", "-d", address, "-p", "tcp", "--dport", "6817"]);
            iptables.args(["-m", "string", "--algo", "bm", "--string", "GET /readyz", "-j", "DROP"]);
            output_of(iptables)?;
        }
        Ok(())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _undone = self.set("-D");
    }
}

/// The Service follows a failed slurmctld although the operator cannot ask any, and a condition says so.
async fn readiness_decides_where_the_operator_cannot_ask(cluster: &SlurmCluster) -> Result<()> {
    let params = kube::api::ListParams::default().labels("app.kubernetes.io/name=slurmctld");
    let pods = cluster.pods().list(&params).await?.items;
    let addresses = pods.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
    let blocked = Blocked(addresses);
    blocked.set("-I")?;
    let begun = Instant::now();
    let get = async || condition(&cluster.env.get::<Controller>("slurm").await?, ACTIVE_REPORTED);
    let reported = eventually("a report", STARTED, get, |it: &Condition| it.reason == "NotAnswering").await?;
    // The kubelet may have been late with the readiness of the slurmctld that took over.
    wait_for_active(cluster, CONTROLLER_POD).await?;
    report(format_args!(
        "daemons do not answer: reported after {:.1} s: {}",
        begun.elapsed().as_secs_f64(),
        reported.message
    ));

    let killed = Instant::now();
    let active_pods = async || {
        kill_slurmctld(cluster, CONTROLLER_POD).unwrap_or_default();
        active_pods_of(cluster).await
    };
    eventually("the standby", STARTED, active_pods, |pods| *pods == ["slurm-controller-1"]).await?;
    report(format_args!(
        "daemons do not answer: the Service leaves a failed slurmctld after {:.1} s",
        killed.elapsed().as_secs_f64()
    ));
    drop(blocked);
    let unblocked = Instant::now();
    eventually("a report", STARTED, get, |it: &Condition| it.reason == "Reported").await?;
    report(format_args!("daemons answer again: reported after {:.1} s", unblocked.elapsed().as_secs_f64()));
    Ok(())
}

/// Sends SIGKILL to slurmctld in a pod.
fn kill_slurmctld(cluster: &SlurmCluster, pod: &str) -> Result<String> {
    let kill =
        "for p in /proc/[0-9]*; do case $(cat $p/comm) in slurmctld*) kill -9 ${p#/proc/} ;; esac; done";
    cluster.exec(pod, "slurmctld", &["sh", "-c", kill])
}

async fn wait_for_active(cluster: &SlurmCluster, pod: &str) -> Result<()> {
    let active_pods = async || active_pods_of(cluster).await;
    eventually(&format!("active {pod}"), STARTED, active_pods, |pods| *pods == [pod]).await?;
    Ok(())
}

/// The pods that the client Service selects.
async fn active_pods_of(cluster: &SlurmCluster) -> Result<Vec<String>> {
    let pods = cluster.pods().list(&kube::api::ListParams::default().labels(CONTROLLER_ACTIVE)).await?;
    Ok(pods.items.iter().map(ResourceExt::name_any).collect())
}
