//! Several replicas with embedded expectations: one is active.

use anyhow::Result;
use e2e::eventually;
use e2e::process::{Process, binary, scratch};
use e2e::test_env::{SOON, TestEnv};

/// Two active replicas would grant batches to themselves, side by side.
#[tokio::test]
async fn second_replica_stands_by_although_no_flag_asks_for_an_election() -> Result<()> {
    let env = TestEnv::without_controller("nodeset-controller", "replicas").await?;
    let namespace = env.namespace();
    let start = |number: u32| {
        let flags = ["--namespaces", namespace, "--leader-elect-namespace", namespace];
        let log = scratch(&format!("{namespace}-{number}.log"))?;
        Process::start(binary("nodeset-controller")?, &flags, &log)
    };
    let is_leading = |replica: &Process| {
        let (_, metrics) = replica.fetch("/metrics").unwrap_or_default();
        metrics.lines().any(|line| line == "slurm_operator_leading 1")
    };
    let is_ready = async |replica: &Process| {
        let fetch = async || Ok(replica.fetch("/readyz").unwrap_or_default());
        eventually("readiness", SOON, fetch, |(status, _)| *status == 200).await
    };
    let first = start(1)?;
    is_ready(&first).await?;
    let second = start(2)?;
    is_ready(&second).await?;
    assert_eq!((is_leading(&first), is_leading(&second)), (true, false));
    drop((first, second));
    env.tear_down().await
}
