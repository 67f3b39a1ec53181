//! The gRPC methods: authenticates callers, checks messages, calls the state machine.

use super::authentication::{Authenticator, Caller};
use super::connections::ConnectionHandle;
use super::leading::{Epoch, Leading, NotLeading};
use super::metrics::observe_rpc;
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
use tokio::time::sleep_until;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

/// How long the first heartbeat of a Join stream may take.
const FIRST_HEARTBEAT_LIMIT: Duration = Duration::from_secs(5);

/// The service as callers see it.
pub struct Api {
    pub runtime: Runtime,
    /// Set when this process leads.
    pub epoch: Epoch,
    pub authenticator: Arc<Authenticator>,
    pub begins: BeginLimit,
}

/// Limits requests for batches per replica.
pub struct BeginLimit(DefaultKeyedRateLimiter<ReplicaId>);

impl BeginLimit {
    /// So many per second.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self(RateLimiter::keyed(Quota::per_second(per_second)))
    }

    /// Drops what is kept for replicas that sent nothing for a while.
    pub fn shrink(&self) {
        self.0.retain_recent();
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

    async fn authenticate<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = self.authenticator.authenticate(request.metadata()).await?;
        if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
            connection.set_authenticated();
        }
        Ok(caller)
    }

    async fn answer_begin(&self, request: Request<BeginRequest>) -> Result<Response<BeginResponse>, Status> {
        self.authenticate(&request).await?;
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
                ?granted,
                others = request.ops.others,
                "Batch granted"
            );
        }
        Ok(Response::new(answer.into()))
    }

    async fn answer_done(&self, request: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        self.authenticate(&request).await?;
        let leading = self.leading()?;
        let batch = batch_id("batch_id", request.into_inner().batch_id).map_err(invalid)?;
        let closed = leading.call(|machine, now| machine.done(&batch, now)).map_err(unavailable)?;
        Ok(Response::new(DoneResponse { closed: closed.map(Into::into) }))
    }

    async fn answer_status(
        &self,
        request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        self.authenticate(&request).await?;
        Ok(Response::new(self.leading()?.status().map_err(unavailable)?))
    }

    async fn answer_join(
        &self,
        request: Request<Streaming<proto::Heartbeat>>,
    ) -> Result<Response<Memberships>, Status> {
        let caller = self.authenticate(&request).await?;
        let leading = self.leading()?;
        let mut heartbeats = request.into_inner();
        let late = |_| Status::deadline_exceeded("no heartbeat");
        let first =
            tokio::time::timeout(FIRST_HEARTBEAT_LIMIT, heartbeats.message()).await.map_err(late)??;
        let first = first.ok_or_else(|| Status::invalid_argument("a heartbeat is missing"))?;
        let replica = accept(leading, first, None)?.replica;
        info!(replica = replica.as_str(), account = &*caller.user, "Replica joined");
        let (ended, end) = oneshot::channel();
        let (epoch, shutdown) = (self.epoch.clone(), self.runtime.shutdown());
        let memberships = leading.memberships();
        self.runtime.spawn("join", async move {
            let end = tokio::select! {
                end = receive(&epoch, &replica, heartbeats) => end,
                () = sleep_until(caller.valid_until) => Status::unauthenticated("the token has expired"),
                // Heartbeats go on until the process ends: replicas stay members while it stops.
                () = shutdown.then(|()| std::future::pending()) => return,
            };
            if end.code() != tonic::Code::Ok {
                warn!(replica = replica.as_str(), reason = end.message(), "Join stream ended");
            }
            let _ = ended.send(end);
        });
        Ok(Response::new(send_memberships(memberships, end)))
    }
}

/// Takes the heartbeats of a replica until its stream ends. The status is `Ok` if the replica left.
async fn receive(epoch: &Epoch, replica: &ReplicaId, mut heartbeats: Streaming<proto::Heartbeat>) -> Status {
    let Some(leading) = epoch.get() else { return unavailable(NotLeading::TermOver) };
    loop {
        let accepted = match heartbeats.message().await {
            Ok(Some(heartbeat)) => accept(leading, heartbeat, Some(replica)),
            Ok(None) => return Status::cancelled("the replica closed it"),
            Err(status) => return status,
        };
        match accepted {
            Ok(heartbeat) if heartbeat.leaving => {
                info!(replica = replica.as_str(), "Replica left");
                return Status::ok("");
            }
            Ok(_) => {}
            Err(status) => return status,
        }
    }
}

/// Passes a heartbeat to the machine. All heartbeats of a stream have to come from one replica.
fn accept(
    leading: &Leading,
    mut heartbeat: proto::Heartbeat,
    replica: Option<&ReplicaId>,
) -> Result<Heartbeat, Status> {
    let clusters = heartbeat.clusters.take().map(cluster_keys).transpose().map_err(invalid)?;
    let heartbeat = Heartbeat::try_from(heartbeat).map_err(invalid)?;
    if replica.is_some_and(|replica| *replica != heartbeat.replica) {
        return Err(Status::invalid_argument("replica_id differs from that of the first heartbeat"));
    }
    leading.heartbeat(&heartbeat, clusters).map_err(unavailable)?;
    Ok(heartbeat)
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
        observe_rpc("Join", self.answer_join(request)).await
    }

    async fn begin(&self, request: Request<BeginRequest>) -> Result<Response<BeginResponse>, Status> {
        observe_rpc("Begin", self.answer_begin(request)).await
    }

    async fn done(&self, request: Request<DoneRequest>) -> Result<Response<DoneResponse>, Status> {
        observe_rpc("Done", self.answer_done(request)).await
    }

    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        observe_rpc("Status", self.answer_status(request)).await
    }
}
