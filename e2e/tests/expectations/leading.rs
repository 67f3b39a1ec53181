//! One process leads, and answers replicas as the protocol says.

use crate::fixture::{Caller, Env, begin, creates, deletes, lease_annotations};
use anyhow::{Context, Result};
use e2e::test_env::SOON;
use e2e::{eventually, report};
use expectations::proto::{BeginRequest, Heartbeat, Membership};
use expectations::{Answer, Expectations, Granted, ReplicaId, Wait, WaitReason, owner_of};
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::Secret;
use rstest::rstest;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

async fn health(channel: Channel, service: &str) -> Result<ServingStatus> {
    let request = HealthCheckRequest { service: service.to_owned() };
    Ok(HealthClient::new(channel).check(request).await?.into_inner().status())
}

#[tokio::test]
async fn one_process_leads_and_the_others_stand_by() -> Result<()> {
    let env = Env::create("lead").await?;
    let leader = env.start("leader", &[])?;
    let seconds = leader.wait_until_ready(SOON).await?;
    report(format_args!("expectations: first start to ready: {seconds:.1?}"));
    let secret = env.namespace.api::<Secret>().get("expectations-tls").await?;
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert!(env.authorities().await?.contains("BEGIN CERTIFICATE"));
    let channel = env.connect(&leader).await?;
    for service in ["", "slinky.expectations.v1.Expectations"] {
        assert_eq!(health(channel.clone(), service).await?, ServingStatus::Serving, "{service}");
    }
    assert_eq!(leader.metric("leading")?.to_string(), "1");

    let standby = env.start("standby", &[])?;
    standby.wait_for_log("Standing by").await?;
    // It presents the certificate that the leader made.
    let get_channel = async || env.connect(&standby).await;
    let channel = eventually("a connection", SOON, get_channel, |_| true).await?;
    assert_eq!(health(channel, "").await?, ServingStatus::NotServing);
    let (status, body) = standby.process.fetch("/readyz")?;
    assert_eq!((status, body.as_str()), (503, "waiting for leading\n"));
    let mut caller = env.caller(&standby).await?;
    let request = caller.request(BeginRequest::default());
    let refused = caller.client.begin(request).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "this process does not lead"));
    env.tear_down().await
}

#[tokio::test]
async fn two_replicas_share_the_clusters_and_take_turns() -> Result<()> {
    let env = Env::create("protocol").await?;
    let leader = env.start_leader(&[]).await?;
    let standby = env.start("standby", &[])?;
    let servers = [&standby, &leader];
    let (first, second) = (env.join("r-1", &servers).await?, env.join("r-2", &servers).await?);
    for replica in [&first, &second] {
        replica.wait_for_members(&["r-1", "r-2"]).await?;
    }
    let members = [first.id.clone(), second.id.clone()];
    let key_of = |owner: &ReplicaId| {
        let mut keys = (0..100).map(|number| format!("slurm/{number}"));
        keys.find(|key| owner_of(key, &members) == Some(owner)).unwrap()
    };
    let (key, key_of_second) = (key_of(&first.id), key_of(&second.id));
    assert!(first.client.ownership().owns(&key) && !second.client.ownership().owns(&key));
    let answer = second.begin(1, &key, None, creates(1)).await?;
    assert!(matches!(&answer, Answer::NotOwner(membership) if membership.live == members), "{answer:?}");

    let answer = first.begin(1, &key, None, creates(3)).await?;
    let Answer::NeedFresh(basis) = answer else { panic!("{answer:?}") };
    let granted = Answer::Granted(Granted { creates: 3, deletes: 0 });
    for _ in 0..2 {
        assert_eq!(
            first.begin(2, &key, Some(basis.clone()), creates(3)).await?,
            granted,
            "also when repeated"
        );
    }
    let answer = first.begin(3, &key, Some(basis.clone()), creates(1)).await?;
    assert!(matches!(answer, Answer::Wait(Wait { reason: WaitReason::OpenBatch, .. })), "{answer:?}");
    let closed = first.done(2).await?.context("a basis")?;
    assert_ne!(closed, basis);
    assert_eq!(first.done(2).await?, Some(closed.clone()), "the same when repeated");
    assert_eq!(first.done(99).await?, None);
    let stale = first.begin(4, &key, Some(basis), creates(1)).await?;
    assert_eq!(stale, Answer::NeedFresh(closed.clone()));
    let answer = first.begin(5, &key, Some(closed), deletes(1)).await?;
    assert!(matches!(answer, Answer::Wait(Wait { reason: WaitReason::HalfOpen, .. })), "{answer:?}");
    let answer = second.open(2, &key_of_second, creates(1)).await?;
    assert_eq!(answer, Answer::Granted(Granted { creates: 1, deletes: 0 }));

    let timing = first.client.timing();
    assert_eq!((timing.lease, timing.grace), (Duration::from_secs(25), Duration::from_secs(35)));
    second.leave().await;
    first.wait_for_members(&["r-1"]).await?;
    assert!(first.client.ownership().owns(&key_of_second));
    assert_eq!(
        leader.process.log()?.matches("Batch granted").count(),
        3,
        "also for the repeated request: {}",
        leader.process.log()?
    );
    assert_eq!(leader.metric("expectations_batches_granted_total")?.to_string(), "2");
    assert_eq!(leader.metric("expectations_members")?.to_string(), "1");
    env.tear_down().await
}

/// A leader that took over from one that stopped in good order deletes at once.
#[rstest]
#[case::unknown(false)]
#[case::settled(true)]
#[tokio::test]
async fn deletes_wait_unless_the_last_leader_had_settled(#[case] is_settled: bool) -> Result<()> {
    let env = Env::create("settled").await?;
    if is_settled {
        env.write_settled_lease().await?;
    }
    let leader = env.start_leader(&[]).await?;
    assert_eq!(lease_annotations(&env).await?, [], "the message is for one leader only");
    let replica = env.join("r", &[&leader]).await?;
    let answer = replica.open(1, "slurm/a", deletes(1)).await?;
    let is_granted = matches!(answer, Answer::Granted(Granted { deletes: 1, .. }));
    assert_eq!(is_granted, is_settled, "{answer:?}");
    env.tear_down().await
}

/// The status with which a Join stream ends.
async fn wait_for_end(memberships: &mut Streaming<Membership>) -> Code {
    let end = async {
        loop {
            match memberships.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    };
    timeout(SOON, end).await.unwrap()
}

/// Heartbeats that are late in an old stream must not bring back a replica that has left.
#[tokio::test]
async fn heartbeat_of_an_older_stream_does_not_count() -> Result<()> {
    let env = Env::create("streams").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    let heartbeat = |leaving| Heartbeat { replica_id: "r".into(), leaving, clusters: None };
    let open = async |caller: &mut Caller| {
        let (mut sender, receiver) = mpsc::channel(9);
        sender.try_send(heartbeat(false))?;
        let request = caller.request(receiver);
        let mut memberships = caller.client.join(request).await?.into_inner();
        let first = memberships.message().await?.context("a membership")?;
        anyhow::Ok((sender, memberships, first))
    };
    let (mut old, mut old_memberships, first) = open(&mut caller).await?;
    assert_eq!(first.replica_ids, ["r"]);
    let (mut new, mut new_memberships, _) = open(&mut caller).await?;
    old.try_send(heartbeat(false))?;
    assert_eq!(wait_for_end(&mut old_memberships).await, Code::Aborted);
    let (mut newest, mut newest_memberships, _) = open(&mut caller).await?;
    newest.try_send(heartbeat(true))?;
    assert_eq!(wait_for_end(&mut newest_memberships).await, Code::Ok);
    new.try_send(heartbeat(false))?;
    assert_eq!(wait_for_end(&mut new_memberships).await, Code::Aborted);
    assert_eq!(leader.metric("expectations_members")?.to_string(), "0");
    env.tear_down().await
}

#[tokio::test]
async fn request_of_a_replica_that_never_joined_is_refused() -> Result<()> {
    let env = Env::create("stranger").await?;
    let leader = env.start_leader(&[]).await?;
    let mut caller = env.caller(&leader).await?;
    let request = begin(&"stranger".into(), 1, "slurm/a", None, creates(1));
    let request = caller.request(BeginRequest::from(request));
    let answer = Answer::try_from(caller.client.begin(request).await?.into_inner())?;
    assert!(matches!(&answer, Answer::NotOwner(membership) if membership.live.is_empty()), "{answer:?}");
    env.tear_down().await
}
