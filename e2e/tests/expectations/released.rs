//! A replica of the last released version calls the service of this one: operators are upgraded one process at a time.

use crate::fixture::{Env, authorized};
use anyhow::{Context, Result};
use futures::channel::mpsc;
use proto::begin_response::Answer;
use proto::expectations_client::ExpectationsClient;
use proto::{BatchId, BeginRequest, DoneRequest, Heartbeat, StatusRequest};

/// Generated from `proto/released`.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::as_conversions,
    reason = "generated"
)]
mod proto {
    tonic::include_proto!("slinky.expectations.v1");
}

#[tokio::test]
async fn replica_of_the_last_release_is_served() -> Result<()> {
    let env = Env::create("released").await?;
    let leader = env.start_leader(&[]).await?;
    let mut client = ExpectationsClient::new(env.connect(&leader).await?);
    let token = std::fs::read_to_string(env.token_file()?)?;
    let (mut heartbeats, receiver) = mpsc::channel(1);
    heartbeats.try_send(Heartbeat { replica_id: "old".into(), leaving: false })?;
    let mut memberships = client.join(authorized(receiver, &token)).await?.into_inner();
    let membership = memberships.message().await?.context("a membership")?;
    assert_eq!(membership.replica_ids, ["old"]);
    assert_eq!(membership.lease.context("a lease")?.seconds, 25);
    let request = BeginRequest {
        batch_id: Some(BatchId { replica_id: "old".into(), counter: 1 }),
        cluster_key: "slurm/a".into(),
        namespace: "slurm".into(),
        name: "a".into(),
        uid: "uid".into(),
        generation: 1,
        basis: None,
        creates: 2,
        deletes: 0,
        others: 0,
    };
    let answer = client.begin(authorized(request.clone(), &token)).await?.into_inner().answer;
    let Some(Answer::NeedFresh(fresh)) = answer else { panic!("{answer:?}") };
    let batch_id = Some(BatchId { replica_id: "old".into(), counter: 2 });
    let request = BeginRequest { batch_id: batch_id.clone(), basis: fresh.basis, ..request };
    let answer = client.begin(authorized(request, &token)).await?.into_inner().answer;
    assert!(matches!(&answer, Some(Answer::Granted(granted)) if granted.creates == 2), "{answer:?}");
    let status = client.status(authorized(StatusRequest {}, &token)).await?.into_inner();
    assert_eq!(status.open_batches.len(), 1);
    let done = client.done(authorized(DoneRequest { batch_id }, &token)).await?.into_inner();
    assert!(done.closed.is_some());
    heartbeats.try_send(Heartbeat { replica_id: "old".into(), leaving: true })?;
    while memberships.message().await?.is_some() {}
    assert_eq!(leader.metric("expectations_members")?.to_string(), "0");
    env.tear_down().await
}
