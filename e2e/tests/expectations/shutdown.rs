//! The leader stops in good order: SIGTERM.

use crate::fixture::{Env, Server, creates, deletes, lease_annotations};
use anyhow::{Context, Result};
use e2e::report;
use e2e::test_env::SOON;
use expectations::{Answer, Expectations, Granted, Wait, WaitReason};
use std::time::Duration;
use tokio::time::Instant;

/// The longest that a process may take after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A leader that took over in good order, so that nothing is half open, and a standby.
async fn start_pair(env: &Env) -> Result<(Server, Server)> {
    env.write_settled_lease().await?;
    let leader = env.start_leader(&[]).await?;
    let standby = env.start("standby", &[])?;
    standby.wait_for_log("Standing by").await?;
    Ok((leader, standby))
}

/// A process with a connected replica ends its Join stream instead of waiting for it.
fn assert_all_tasks_ended(leader: &Server) -> Result<()> {
    let log = leader.process.log()?;
    assert!(!log.contains("Tasks did not stop in time"), "{log}");
    Ok(())
}

#[tokio::test]
async fn settled_leader_hands_over_at_once_and_deletes_go_on() -> Result<()> {
    let env = Env::create("handover").await?;
    let (mut leader, standby) = start_pair(&env).await?;
    let replica = env.join("r", &[&leader, &standby]).await?;
    assert_eq!(
        replica.open(1, "slurm/a", deletes(1)).await?,
        Answer::Granted(Granted { creates: 0, deletes: 1 })
    );
    replica.done(2).await?.context("a basis")?;
    let started = Instant::now();
    leader.process.terminate()?;
    let led = standby.wait_until_ready(SOON).await?;
    let answer = loop {
        // The Join stream moves to the new leader by itself.
        match replica.open(10, "slurm/a", deletes(1)).await {
            Ok(Answer::Wait(Wait { reason: WaitReason::Stopping, .. })) | Err(_)
                if started.elapsed() < SOON => {}
            answer => break answer?,
        }
    };
    let granted = started.elapsed();
    report(format_args!(
        "expectations: SIGTERM of a settled leader: the standby leads after {led:.2?}, next delete after {granted:.2?}"
    ));
    assert_eq!(answer, Answer::Granted(Granted { creates: 0, deletes: 1 }), "half-open time is skipped");
    // Otherwise the Lease would have to expire.
    assert!(granted < Duration::from_secs(8), "{granted:?}");
    assert_eq!(leader.wait_for_exit(STOP_LIMIT).await?.0, Some(0), "{}", leader.process.log()?);
    assert_all_tasks_ended(&leader)?;
    assert!(standby.process.log()?.contains("predecessor=Settled"), "{}", standby.process.log()?);
    env.tear_down().await
}

#[tokio::test]
async fn leader_waits_for_the_open_batch_and_grants_no_other() -> Result<()> {
    let env = Env::create("open").await?;
    let (mut leader, standby) = start_pair(&env).await?;
    let replica = env.join("r", &[&leader, &standby]).await?;
    let open = replica.open(1, "slurm/a", deletes(1)).await?;
    assert_eq!(open, Answer::Granted(Granted { creates: 0, deletes: 1 }));
    leader.process.terminate()?;
    leader.wait_for_log("Received SIGTERM").await?;
    let (status, body) = leader.process.fetch("/readyz")?;
    assert_eq!((status, body.as_str()), (503, "shutting down\n"));
    let answer = replica.begin(3, "slurm/b", None, creates(1)).await?;
    assert!(matches!(answer, Answer::Wait(Wait { reason: WaitReason::Stopping, .. })), "{answer:?}");
    // Longer than a member lives without heartbeats.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(replica.client.ownership().is_joined(), "the Join stream ended before the batch");
    assert_eq!(leader.process.exit_status()?, None, "{}", leader.process.log()?);
    replica.done(2).await?.context("a basis")?;
    let (exit, after) = leader.wait_for_exit(STOP_LIMIT).await?;
    report(format_args!("expectations: a leader that stops exits {after:.2?} after the last Done"));
    assert_eq!(exit, Some(0), "{}", leader.process.log()?);
    assert_all_tasks_ended(&leader)?;
    standby.wait_until_ready(SOON).await?;
    assert!(standby.process.log()?.contains("predecessor=Settled"), "{}", standby.process.log()?);
    env.tear_down().await
}

/// A batch whose holder never ends it delays the process for a limited time, and the next leader waits instead.
#[tokio::test]
async fn leader_exits_in_time_although_a_batch_stays_open() -> Result<()> {
    let env = Env::create("stuck").await?;
    env.write_settled_lease().await?;
    let mut leader = env.start_leader(&[]).await?;
    let replica = env.join("r", &[&leader]).await?;
    let open = replica.open(1, "slurm/a", deletes(1)).await?;
    assert!(matches!(open, Answer::Granted(_)), "{open:?}");
    leader.process.terminate()?;
    let (exit, after) = leader.wait_for_exit(STOP_LIMIT).await?;
    report(format_args!("expectations: a leader with an open batch exits {after:.2?} after SIGTERM"));
    assert_eq!(exit, Some(0), "{}", leader.process.log()?);
    assert!(after > Duration::from_secs(10), "it did not wait for the batch: {after:?}");
    assert_eq!(lease_annotations(&env).await?, [], "it has not settled");
    env.tear_down().await
}

#[tokio::test]
async fn leader_in_half_open_time_stops_at_once() -> Result<()> {
    let env = Env::create("halfopen").await?;
    let mut leader = env.start_leader(&[]).await?;
    let replica = env.join("r", &[&leader]).await?;
    leader.process.terminate()?;
    let (exit, after) = leader.wait_for_exit(STOP_LIMIT).await?;
    assert_eq!(exit, Some(0), "{}", leader.process.log()?);
    // Less than a leader waits that could settle.
    assert!(after < Duration::from_secs(10), "{after:?}");
    assert_all_tasks_ended(&leader)?;
    assert_eq!(lease_annotations(&env).await?, []);
    drop(replica);
    env.tear_down().await
}
