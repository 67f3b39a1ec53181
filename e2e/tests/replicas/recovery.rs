//! What the loss of a process costs.

use crate::faults::{Fault, SERVICES};
use crate::operator::Operator;
use crate::workload::Workload;
use anyhow::{Result, ensure};
use e2e::expectations::ExpectationsEnv;
use e2e::test_env::{SOON, condition};
use e2e::{eventually, report};
use kube::api::ListParams;
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
    workload.stop_reporting_ready();
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
    workload.resume_reporting_ready();
    workload.wait_until_exact().await?;
    let count = async || degraded(&workload, "ExpectationsUnavailable").await;
    eventually("no condition", SOON, count, |count| *count == 0).await?;
    workload.delete().await?;
    operator.stop().await?;
    env.tear_down().await
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_of_any_process_costs_seconds() -> Result<()> {
    let env = ExpectationsEnv::create("recovery").await?;
    let workload = Workload::create(&env, 60, false).await?;
    let mut operator = Operator::start(&env).await?;
    let began = Instant::now();
    workload.scale(1).await?;
    workload.wait_for_pod(0, SOON).await?;
    report(format!("recovery: first install: first create after {:.1} s", began.elapsed().as_secs_f64()));
    workload.wait_until_exact().await?;

    // The kubelet restarts the container at once.
    let leader = operator.leader()?;
    operator.begin(Fault::KillService(leader, LONG))?;
    let began = Instant::now();
    operator.heal()?;
    workload.scale(2).await?;
    workload.wait_for_pod(1, SOON).await?;
    let seconds = began.elapsed();
    report(format!("recovery: leader killed: first create after {:.1} s", seconds.as_secs_f64()));
    ensure!(seconds < Duration::from_secs(5), "{seconds:?}");
    workload.wait_until_exact().await?;

    let leader = operator.leader()?;
    operator.begin(Fault::PauseService(leader, LONG))?;
    let began = Instant::now();
    workload.scale(3).await?;
    workload.wait_for_pod(2, SOON * 2).await?;
    let seconds = began.elapsed();
    report(format!("recovery: leader's machine lost: first create after {:.1} s", seconds.as_secs_f64()));
    ensure!(seconds < Duration::from_secs(20), "{seconds:?}");
    operator.heal()?;
    workload.wait_until_exact().await?;

    // Every replica owns some clusters, or the others own them.
    operator.begin(Fault::KillReplica(0, LONG))?;
    let began = Instant::now();
    workload.scale(4).await?;
    let all = async || Ok(workload.pods.list_metadata(&ListParams::default()).await?.items.len());
    eventually("pods of all NodeSets", SOON * 3, all, |count| *count == 24).await?;
    let seconds = began.elapsed();
    report(format!("recovery: replica killed: all creates after {:.1} s", seconds.as_secs_f64()));
    ensure!(seconds < Duration::from_secs(35), "{seconds:?}");

    let began = Instant::now();
    workload.scale(3).await?;
    workload.wait_until_exact().await?;
    report(format!("recovery: all deletes after {:.1} s", began.elapsed().as_secs_f64()));
    operator.heal()?;
    workload.delete().await?;
    operator.stop().await?;
    env.tear_down().await
}
