//! The gRPC methods: checks messages, and calls the state machine.

use super::authentication::Caller;
use super::leading::{Epoch, HeartbeatError, Joined, Leading, NotLeading};
use expectations::convert::{InvalidMessage, batch_id, cluster_keys};
use expectations::proto::expectations_server::Expectations;
use expectations::proto::{
    self, BeginRequest, BeginResponse, DoneRequest, DoneResponse, StatusRequest, StatusResponse,
};
use expectations::{Answer, Begin, Heartbeat, Membership, ReplicaId};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use operator_runtime::Runtime;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep_until, timeout};
use tonic::{Request, Response, Status, Streaming};
use tracing::info;

/// How long the first heartbeat of a Join stream may take.
const FIRST_HEARTBEAT_LIMIT: Duration = Duration::from_secs(5);

/// The service as callers see it. They have been [admitted](super::admission).
pub struct Api {
    pub runtime: Runtime,
    /// Set when this process leads.
    pub epoch: Epoch,
    pub begins: Arc<BeginLimit>,
}

/// Limits requests for batches per replica.
pub struct BeginLimit(DefaultKeyedRateLimiter<ReplicaId>);

impl BeginLimit {
    /// So many per second.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self(RateLimiter::keyed(Quota::per_second(per_second)))
    }

    /// Forgets replicas that sent nothing for a while.
    pub fn forget_idle(&self) {
        self.0.retain_recent();
        self.0.shrink_to_fit();
    }

    fn check(&self, replica: &ReplicaId) -> Result<(), Status> {
        let over = |_| Status::resource_exhausted("too many requests for batches from this replica");
        self.0.check_key(replica).map_err(over)
    }
}

impl Api {
    /// The epoch that this process leads.
    fn leading(&self) -> Result<&Leading, Status> {
        self.epoch.get().ok_or_else(|| Status::unavailable("this process does not lead"))
    }

    /// Takes heartbeats in the background until the stream ends; returns why it ended.
    fn receive(
        &self,
        joined: Joined,
        heartbeats: Streaming<proto::Heartbeat>,
        caller: &Caller,
    ) -> oneshot::Receiver<Status> {
        let (ended, end) = oneshot::channel();
        let (epoch, valid_until) = (self.epoch.clone(), caller.valid_until);
        // Not already at shutdown: replicas stay members while open batches end.
        let stopped = self.runtime.drained();
        self.runtime.spawn("join", async move {
            let Some(leading) = epoch.get() else { return };
            let end = tokio::select! {
                end = receive(leading, &joined, heartbeats) => end,
                () = sleep_until(valid_until) => Status::unauthenticated("the token has expired"),
                () = stopped => Status::unavailable("this process has stopped"),
            };
            leading.end_stream(&joined);
            info!(replica = joined.replica.as_str(), reason = end.message(), "Join stream ended");
            let _ = ended.send(end);
        });
        end
    }
}

/// Takes the heartbeats of a replica until its stream ends. The status is `Ok` if the replica left.
async fn receive(leading: &Leading, joined: &Joined, mut heartbeats: Streaming<proto::Heartbeat>) -> Status {
    loop {
        let heartbeat = match heartbeats.message().await {
            Ok(Some(heartbeat)) => heartbeat,
            Ok(None) => return Status::cancelled("the replica closed it"),
            Err(status) => return status,
        };
        match accept(leading, joined, heartbeat) {
            Ok(true) => return Status::ok("the replica left"),
            Ok(false) => {}
            Err(status) => return status,
        }
    }
}

/// Passes a heartbeat to the machine; returns whether the replica leaves. All heartbeats of a stream have to come from
/// one replica.
fn accept(leading: &Leading, joined: &Joined, mut heartbeat: proto::Heartbeat) -> Result<bool, Status> {
    let clusters = heartbeat.clusters.take().map(cluster_keys).transpose().map_err(invalid)?;
    let Heartbeat { replica, leaving } = heartbeat.try_into().map_err(invalid)?;
    if replica != joined.replica {
        return Err(Status::invalid_argument("replica_id differs from that of the first heartbeat"));
    }
    leading.heartbeat(joined, leaving, clusters).map_err(|error| match error {
        HeartbeatError::NotLeading(error) => unavailable(error),
        HeartbeatError::Superseded => Status::aborted(error.to_string()),
    })?;
    Ok(leaving)
}

type Memberships = BoxStream<'static, Result<proto::Membership, Status>>;

/// The membership and its changes, until `end`.
fn send_memberships(memberships: watch::Receiver<Membership>, end: oneshot::Receiver<Status>) -> Memberships {
    let next = |(mut memberships, is_first): (watch::Receiver<Membership>, bool)| async move {
        if !is_first {
            memberships.changed().await.ok()?;
        }
        let membership = memberships.borrow_and_update().clone();
        Some((Ok(membership.into()), (memberships, false)))
    };
    let end = end.map(|end| end.ok().filter(|status| status.code() != tonic::Code::Ok).map(Err)).shared();
    let last = end.clone().into_stream().filter_map(|end| async { end });
    stream::unfold((memberships, true), next).take_until(end).chain(last).boxed()
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
fn invalid(error: InvalidMessage) -> Status {
    Status::invalid_argument(error.to_string())
}

fn unavailable(error: NotLeading) -> Status {
    Status::unavailable(error.to_string())
}

#[tonic::async_trait]
impl Expectations for Api {
    type JoinStream = Memberships;

    async fn join(
        &self,
        request: Request<Streaming<proto::Heartbeat>>,
    ) -> Result<Response<Memberships>, Status> {
        let leading = self.leading()?;
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Status::internal("the caller is not known"))?;
        let mut heartbeats = request.into_inner();
        let late = |_| Status::deadline_exceeded("no heartbeat");
        let first = timeout(FIRST_HEARTBEAT_LIMIT, heartbeats.message()).await.map_err(late)??;
        let first = first.ok_or_else(|| Status::invalid_argument("a heartbeat is missing"))?;
        let Heartbeat { replica, .. } = first.clone().try_into().map_err(invalid)?;
        let joined = leading.join(replica).map_err(unavailable)?;
        accept(leading, &joined, first)?;
        info!(replica = joined.replica.as_str(), account = &*caller.user, "Replica joined");
        let memberships = leading.memberships();
        Ok(Response::new(send_memberships(memberships, self.receive(joined, heartbeats, &caller))))
    }

    async fn begin(&self, request: Request<BeginRequest>) -> Result<Response<BeginResponse>, Status> {
        let leading = self.leading()?;
        let request = Begin::try_from(request.into_inner()).map_err(invalid)?;
        self.begins.check(&request.batch.replica)?;
        let answer = leading.call(|machine, now| machine.begin(&request, now)).map_err(unavailable)?;
        if let Answer::Granted(granted) = &answer {
            let nodeset = &request.nodeset;
            info!(
                batch = %request.batch,
                namespace = &*nodeset.namespace,
                nodeset = &*nodeset.name,
                creates = granted.creates,
                deletes = granted.deletes,
                others = request.ops.others,
                "Batch granted"
            );
        }
        Ok(Response::new(answer.into()))
    }

    async fn done(&self, request: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        let leading = self.leading()?;
        let batch = batch_id("batch_id", request.into_inner().batch_id).map_err(invalid)?;
        let closed = leading.call(|machine, now| machine.done(&batch, now)).map_err(unavailable)?;
        Ok(Response::new(DoneResponse { closed: closed.map(Into::into) }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(self.leading()?.status().map_err(unavailable)?))
    }
}
