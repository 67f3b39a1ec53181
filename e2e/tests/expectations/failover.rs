//! The leader ends without notice: killed, or stopped.

use crate::fixture::{Env, Replica, Server, creates, holder};
use anyhow::{Context, Result};
use e2e::test_env::SOON;
use e2e::{eventually, report};
use expectations::proto::StatusRequest;
use expectations::{Answer, Expectations};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tonic::Code;

/// A Lease expires 15 s after its last renewal. The rest is for a machine that is busy with other tests.
const TAKEOVER: Duration = Duration::from_secs(20);

/// Waits until a replica is granted a batch, which every new epoch does at once if it only creates.
async fn wait_for_grant(replica: &Replica, started: Instant, number: u64) -> Result<Duration> {
    let mut number = number;
    loop {
        let answer = timeout(Duration::from_secs(2), replica.open(number, "slurm/a", creates(1))).await;
        match answer {
            Ok(Ok(Answer::Granted(_))) => return Ok(started.elapsed()),
            last if started.elapsed() > Duration::from_secs(40) => anyhow::bail!("no grant: {last:?}"),
            _ => number += 2,
        }
    }
}

#[tokio::test]
async fn container_that_restarts_in_its_pod_leads_at_once() -> Result<()> {
    let env = Env::create("restart").await?;
    let mut leader = env.start("pod", &[])?;
    leader.wait_until_ready(SOON).await?;
    let replica = env.join("r", &[&leader]).await?;
    assert!(matches!(replica.open(1, "slurm/a", creates(1)).await?, Answer::Granted(_)));
    leader.process.kill()?;
    let started = Instant::now();
    let next = env.start_at(leader.address, "pod", &[])?;
    let ready = next.wait_until_ready(SOON).await?;
    let granted = wait_for_grant(&replica, started, 100).await?;
    report(format_args!(
        "expectations: kill -9, container restarted: leads after {ready:.2?}, next grant of creates after {granted:.2?}"
    ));
    // Otherwise the Lease would have to expire.
    assert!(granted < Duration::from_secs(8), "{granted:?}");
    env.tear_down().await
}

#[tokio::test]
async fn standby_takes_over_from_a_killed_leader() -> Result<()> {
    let env = Env::create("kill").await?;
    let mut leader = env.start_leader(&[]).await?;
    let standby = env.start("standby", &[])?;
    standby.wait_for_log("Standing by").await?;
    let replica = env.join("r", &[&leader, &standby]).await?;
    let started = Instant::now();
    leader.process.kill()?;
    let led = standby.wait_until_ready(TAKEOVER).await?;
    let granted = wait_for_grant(&replica, started, 100).await?;
    report(format_args!(
        "expectations: kill -9 with a standby: leads after {led:.2?}, next grant of creates after {granted:.2?}"
    ));
    assert!(granted < TAKEOVER, "{granted:?}");
    env.tear_down().await
}

async fn refusal(env: &Env, server: &Server) -> Result<tonic::Status> {
    let mut caller = env.caller(server).await?;
    let request = caller.request(StatusRequest {});
    caller.client.status(request).await.err().context("an answer of a process that does not lead")
}

/// The old leader is as a process on a machine that froze. When it goes on, its time is over.
#[tokio::test]
async fn standby_takes_over_from_a_stopped_leader_which_never_answers_again() -> Result<()> {
    let env = Env::create("stop").await?;
    let mut leader = env.start_leader(&[]).await?;
    let standby = env.start("standby", &[])?;
    standby.wait_for_log("Standing by").await?;
    let replica = env.join("r", &[&leader, &standby]).await?;
    // A connection from before is still open when the old leader goes on.
    let mut old = env.caller(&leader).await?;
    let request = old.request(StatusRequest {});
    assert!(old.client.status(request).await.is_ok());
    let started = Instant::now();
    leader.process.signal("STOP")?;
    let led = standby.wait_until_ready(TAKEOVER).await?;
    let granted = wait_for_grant(&replica, started, 100).await?;
    report(format_args!(
        "expectations: SIGSTOP with a standby: leads after {led:.2?}, next grant of creates after {granted:.2?}"
    ));
    assert!(granted < TAKEOVER, "{granted:?}");
    let request = old.request(StatusRequest {});
    let late = async { old.client.status(request).await };
    let resume = async {
        tokio::task::yield_now().await;
        leader.process.signal("CONT")
    };
    let (late, resumed) = tokio::join!(late, resume);
    resumed?;
    let code = late.err().map(|status| status.code());
    assert!(matches!(code, Some(Code::Unavailable | Code::Unknown | Code::Cancelled)), "{code:?}");
    let (exit, after) = leader.wait_for_exit(Duration::from_secs(8)).await?;
    assert_eq!(exit, Some(1), "{}", leader.process.log()?);
    report(format_args!("expectations: the stopped leader exits {after:.2?} after it goes on"));
    assert!(holder(&env).await?.is_some_and(|holder| holder.starts_with("standby")));
    assert!(replica.client.ownership().is_joined());
    env.tear_down().await
}

#[tokio::test]
async fn leader_whose_lease_was_taken_answers_nothing_and_exits() -> Result<()> {
    let env = Env::create("taken").await?;
    let mut leader = env.start_leader(&[]).await?;
    let lease = serde_json::json!({ "spec": { "holderIdentity": "thief" } });
    env.patch::<k8s_openapi::api::coordination::v1::Lease>("expectations", lease).await?;
    let answer = async || match refusal(&env, &leader).await {
        Ok(status) => Ok(format!("{:?} {}", status.code(), status.message())),
        Err(error) => Ok(format!("{error:#}")),
    };
    let is_over =
        |answer: &String| answer.contains("the term of this process is over") || answer.contains("onnect");
    eventually("refusals", SOON, answer, is_over).await?;
    assert_eq!(leader.wait_for_exit(Duration::from_secs(5)).await?.0, Some(1));
    env.tear_down().await
}

/// The service receives no heartbeats while it is paused, here for longer than a member lives without them.
#[tokio::test]
async fn service_that_was_paused_for_a_moment_keeps_its_members() -> Result<()> {
    let env = Env::create("pause").await?;
    let leader = env.start_leader(&[]).await?;
    let replica = env.join("r", &[&leader]).await?;
    leader.process.signal("STOP")?;
    tokio::time::sleep(Duration::from_millis(6_500)).await;
    leader.process.signal("CONT")?;
    let answer = wait_for_grant(&replica, Instant::now(), 1).await?;
    assert!(answer < Duration::from_secs(5), "{answer:?}");
    let log = leader.process.log()?;
    assert_eq!(log.matches("Membership changed").count(), 1, "{log}");
    env.tear_down().await
}
