//! What the loss of a process costs.

use crate::faults::{Fault, SERVICES};
use crate::operator::Operator;
use crate::workload::Workload;
use anyhow::{Context, Result, ensure};
use e2e::expectations::ExpectationsEnv;
use e2e::test_env::{SOON, condition};
use e2e::{eventually, report};
use kube::api::ListParams;
use rstest::rstest;
use slinky_api::conditions::DEGRADED;
use slinky_api::v1beta1::NodeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Longer than any fault of these tests.
const LONG: Duration = Duration::from_mins(10);
/// How long the service is gone.
const OUTAGE: Duration = Duration::from_mins(1);

/// The NodeSets that are degraded for this reason.
async fn degraded(workload: &Workload, reason: &str) -> Result<usize> {
    let nodesets: Vec<NodeSet> = workload.nodesets.list(&ListParams::default()).await?.items;
    let is_degraded =
        |nodeset: &&NodeSet| condition(*nodeset, DEGRADED).is_ok_and(|degraded| degraded.reason == reason);
    Ok(nodesets.iter().filter(is_degraded).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_service_nothing_is_written_and_a_condition_says_why() -> Result<()> {
    let env = ExpectationsEnv::create("outage").await?;
    let workload = Workload::create(&env, 12, false).await?;
    let mut operator = Operator::start(&env).await?;
    workload.scale(1).await?;
    workload.wait_until_exact().await?;

    for service in 0..SERVICES {
        operator.begin(Fault::KillService(service, LONG))?;
    }
    let began = Instant::now();
    workload.scale(2).await?;
    let count = async || degraded(&workload, "ExpectationsUnavailable").await;
    eventually("conditions of all NodeSets", SOON * 3, count, |count| *count == 6).await?;
    report(format!("outage: all NodeSets report it after {:.1} s", began.elapsed().as_secs_f64()));
    // Status goes on: a pod that fails its probe is reported.
    let pod = "blue-cpu-0";
    workload.stop_reporting_ready().await;
    workload.set_ready(pod, false).await?;
    let ready =
        async || Ok(workload.nodesets.get("blue-cpu").await?.status.unwrap_or_default().ready_replicas);
    eventually("a status with no ready worker", SOON, ready, |ready| *ready == 0).await?;
    while began.elapsed() < OUTAGE {
        let pods = workload.pods.list_metadata(&ListParams::default()).await?.items.len();
        ensure!(pods == 6, "{pods} pods");
        sleep(Duration::from_secs(1)).await;
    }

    workload.set_ready(pod, true).await?;
    operator.heal()?;
    let healed = Instant::now();
    workload.wait_for_pod(1, SOON).await?;
    report(format!(
        "outage: first create {:.1} s after the service is started",
        healed.elapsed().as_secs_f64()
    ));
    workload.resume_reporting_ready().await;
    workload.wait_until_exact().await?;
    let count = async || degraded(&workload, "ExpectationsUnavailable").await;
    eventually("no condition", SOON, count, |count| *count == 0).await?;
    workload.delete().await?;
    operator.stop().await?;
    env.tear_down().await
}

/// A process that is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// None: the operator was just installed.
    Install,
    /// The leader is killed, and its container restarted by the kubelet at once.
    LeaderKilled,
    /// The machine of the leader stops.
    LeaderStopped,
    /// A replica is killed. It owns some clusters, or the others own them.
    ReplicaKilled,
}

/// The limits tell a recovery from a wait for something to expire, on a machine that is busy with other tests: a killed leader
/// is back before its Lease expires, and no create waits until half-open time is over.
#[rstest]
#[case::install(Loss::Install, Duration::from_secs(40))]
#[case::leader_killed(Loss::LeaderKilled, Duration::from_secs(14))]
#[case::leader_stopped(Loss::LeaderStopped, Duration::from_secs(40))]
#[case::replica_killed(Loss::ReplicaKilled, Duration::from_secs(40))]
#[tokio::test(flavor = "multi_thread")]
async fn loss_of_any_process_costs_seconds(#[case] loss: Loss, #[case] limit: Duration) -> Result<()> {
    let env = ExpectationsEnv::create(&format!("recovery-{loss:?}").to_lowercase()).await?;
    let workload = Workload::create(&env, 60, false).await?;
    let is_install = matches!(loss, Loss::Install);
    let existing = if is_install { 0 } else { 6 };
    workload.scale(if is_install { 2 } else { 1 }).await?;
    let mut began = Instant::now();
    let mut operator = Operator::start(&env).await?;
    if !is_install {
        workload.wait_until_exact().await?;
        began = Instant::now();
        match loss {
            Loss::Install => {}
            Loss::LeaderKilled => {
                operator.begin(Fault::KillService(operator.leader()?, LONG))?;
                operator.heal()?;
            }
            Loss::LeaderStopped => operator.begin(Fault::PauseService(operator.leader()?, LONG))?,
            Loss::ReplicaKilled => operator.begin(Fault::KillReplica(0, LONG))?,
        }
        workload.scale(2).await?;
    }
    let first_create = workload.wait_for_created(existing + 1, SOON * 2).await?.duration_since(began);
    let all_creates = workload.wait_for_created(12, SOON * 3).await?.duration_since(began);
    workload.scale(1).await?;
    let first_delete = workload.wait_for_deleted(1, SOON * 5).await?.duration_since(began);
    let all_deletes = workload.wait_for_deleted(6, SOON * 5).await?.duration_since(began);
    let [first_create, all_creates, first_delete, all_deletes] =
        [first_create, all_creates, first_delete, all_deletes].map(|time| time.as_secs_f64());
    report(format!(
        "recovery: {loss:?}: creates after {first_create:.1} to {all_creates:.1} s, \
         deletes after {first_delete:.1} to {all_deletes:.1} s"
    ));
    ensure!(all_creates < limit.as_secs_f64(), "all creates after {all_creates:.1} s");
    operator.heal()?;
    workload.wait_until_exact().await?;
    workload.delete().await?;
    operator.stop().await?;
    env.tear_down().await
}

/// The machine that runs them is lost. The new leader never hears of the replica, and the others take over its clusters.
#[tokio::test(flavor = "multi_thread")]
async fn loss_of_replica_and_leader_at_once_costs_seconds() -> Result<()> {
    let env = ExpectationsEnv::create("machine").await?;
    let workload = Workload::create(&env, 60, false).await?;
    let mut operator = Operator::start(&env).await?;
    workload.scale(1).await?;
    workload.wait_until_exact().await?;

    // One after the other, since one of them may own no cluster.
    for (number, replicas, pods) in [(0, 2, 12), (1, 3, 18)] {
        let leader = operator.leader()?;
        operator.begin(Fault::KillReplica(number, LONG))?;
        operator.begin(Fault::KillService(leader, LONG))?;
        let began = Instant::now();
        workload.scale(replicas).await?;
        let all = async || Ok(workload.pods.list_metadata(&ListParams::default()).await?.items.len());
        eventually("pods of all NodeSets", SOON * 3, all, |count| *count == pods)
            .await
            .with_context(|| operator.logs())?;
        report(format!(
            "recovery: replica {number} and leader lost: all creates after {:.1} s",
            began.elapsed().as_secs_f64()
        ));
        operator.heal()?;
        workload.wait_until_exact().await?;
    }
    workload.delete().await?;
    operator.stop().await?;
    env.tear_down().await
}
