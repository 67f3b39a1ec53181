//! The expectations service over the network: one replica's connection to whichever process of the service leads.
//!
//! A background task ([`Client::run`]) keeps the replica in the membership by the Join stream. Begin and Done go to the
//! process that the replica has joined, and wait a moment for one if there is none. Several processes of the service may
//! run; the one that leads is found by asking all of them, so that no load balancer has to know.

mod connect;
mod join;
mod members;
mod status;

use crate::convert::InvalidMessage;
use crate::embedded::Clock;
use crate::messages::{Answer, Basis, BatchId, Begin, Membership, ReplicaId};
use crate::ownership::Ownership;
use crate::proto::expectations_client::ExpectationsClient;
use crate::proto::{BeginRequest, DoneRequest};
use crate::timing::Timing;
use crate::{Expectations, Unavailable};
use connect::Targets;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
pub use members::Members;
use parking_lot::Mutex;
pub use status::status;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Uri};
use tonic::{Request, Status};

/// Where a pod finds the certificates of the authorities, if not told otherwise.
pub const DEFAULT_CA_FILE: &str = "/var/run/secrets/expectations/ca.crt";
/// Where a pod finds its ServiceAccount token for the service, if not told otherwise.
pub const DEFAULT_TOKEN_FILE: &str = "/var/run/secrets/expectations/token";

/// Where the service is, and how this replica proves who it is.
#[derive(Clone, Debug)]
pub struct Config {
    /// `https://<host>:<port>` of the service. Every address of every host is tried.
    pub endpoints: Vec<Uri>,
    /// PEM file with the certificates of the authorities that sign the service's certificate. Read for every connection.
    pub ca_file: PathBuf,
    /// File with the ServiceAccount token of this replica. Read for every call.
    pub token_file: PathBuf,
}

/// The client of one replica.
pub struct Client {
    replica: ReplicaId,
    clock: Clock,
    token_file: PathBuf,
    targets: Targets,
    /// Time limits of this replica. Lease and grace are those of the service, once it announced them.
    timing: Timing,
    state: Mutex<State>,
    /// The process that this replica has joined.
    leader: watch::Sender<Option<ExpectationsClient<Channel>>>,
    /// What this replica may work on.
    ownership: watch::Sender<Ownership>,
}

#[derive(Default)]
struct State {
    members: Members,
    /// Why this replica has joined no process of the service, by address.
    errors: BTreeMap<SocketAddr, String>,
    /// The clusters that this replica works on.
    cluster_keys: Vec<String>,
}

impl Client {
    /// A client that has joined nothing yet: see [`Client::run`].
    pub fn new(config: Config, replica: ReplicaId, clock: Clock) -> Self {
        let ownership = Ownership::Shared { replica: replica.clone(), members: Arc::default(), epoch: None };
        Self {
            replica,
            clock,
            token_file: config.token_file,
            targets: Targets::new(config.endpoints, config.ca_file),
            timing: Timing::default(),
            state: Mutex::default(),
            leader: watch::Sender::new(None),
            ownership: watch::Sender::new(ownership),
        }
    }

    /// Resolves when this replica has received its first membership.
    pub async fn joined(&self) {
        // The sender is part of `self`.
        let is_joined = |ownership: &Ownership| ownership.is_joined();
        let _ = self.ownership.subscribe().wait_for(is_joined).await;
    }

    /// The process that this replica has joined. Waits a moment for one, so that a request that is due while the service
    /// restarts need not be repeated.
    async fn leader(&self) -> Result<ExpectationsClient<Channel>, Unavailable> {
        let mut leader = self.leader.subscribe();
        let limit = self.timing.rpc_limit * 3 / 4;
        let found = tokio::time::timeout(limit, leader.wait_for(Option::is_some)).await;
        if let Ok(Ok(leader)) = found
            && let Some(leader) = leader.as_ref()
        {
            return Ok(leader.clone());
        }
        Err(self.not_joined())
    }

    /// Why this replica has joined no process of the service.
    fn not_joined(&self) -> Unavailable {
        let state = self.state.lock();
        let errors: Vec<_> =
            state.errors.iter().map(|(address, error)| format!("{address}: {error}")).collect();
        let errors = if errors.is_empty() {
            "no process of the service answered".to_owned()
        } else {
            errors.join("; ")
        };
        Unavailable(errors.into())
    }

    /// Takes a membership, of the epoch that was joined or of a call to it.
    fn update_members(&self, membership: Membership) {
        self.state.lock().members.update(membership, (self.clock)(), self.timing.dead_after);
        self.publish_ownership();
    }

    /// Publishes what this replica may work on, if that changed.
    fn publish_ownership(&self) {
        let is_joined = self.leader.borrow().is_some();
        let state = self.state.lock();
        let members = state.members.live((self.clock)());
        let epoch = state.members.epoch().filter(|_| is_joined).cloned();
        drop(state);
        let current = Ownership::Shared { replica: self.replica.clone(), members, epoch };
        self.ownership.send_if_modified(|published| {
            let is_changed = *published != current;
            if is_changed {
                *published = current;
            }
            is_changed
        });
    }

    async fn call_begin(&self, request: Begin) -> Result<Answer, Unavailable> {
        let request = authorized(&self.token_file, BeginRequest::from(request))?;
        let response = self.leader().await?.begin(request).await.map_err(unavailable)?;
        let answer = Answer::try_from(response.into_inner()).map_err(unusable)?;
        if let Answer::NotOwner(membership) = &answer {
            let is_current = self.state.lock().members.epoch() == Some(&membership.epoch);
            if is_current {
                self.update_members(membership.clone());
            }
        }
        Ok(answer)
    }

    async fn call_done(&self, batch: BatchId) -> Result<Option<Basis>, Unavailable> {
        let request = authorized(&self.token_file, DoneRequest { batch_id: Some(batch.into()) })?;
        let response = self.leader().await?.done(request).await.map_err(unavailable)?;
        response.into_inner().closed.map(Basis::try_from).transpose().map_err(unusable)
    }
}

impl Expectations for Client {
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>> {
        self.call_begin(request).boxed()
    }

    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>> {
        self.call_done(batch).boxed()
    }

    fn ownership(&self) -> Ownership {
        self.ownership.borrow().clone()
    }

    fn ownership_changes(&self) -> BoxStream<'static, ()> {
        changes_of(&self.ownership)
    }

    fn report_clusters(&self, cluster_keys: Vec<String>) {
        self.state.lock().cluster_keys = cluster_keys;
    }

    fn timing(&self) -> Timing {
        let state = self.state.lock();
        match state.members.latest() {
            Some(latest) => Timing { lease: latest.lease, grace: latest.grace, ..self.timing },
            None => self.timing,
        }
    }
}

/// An item for each change of what a replica owns, from now on.
pub fn changes_of(ownership: &watch::Sender<Ownership>) -> BoxStream<'static, ()> {
    let next = |mut changes: watch::Receiver<Ownership>| async move {
        changes.changed().await.ok()?;
        Some(((), changes))
    };
    stream::unfold(ownership.subscribe(), next).boxed()
}

/// A request with the token in a file.
fn authorized<T>(token_file: &Path, message: T) -> Result<Request<T>, Unavailable> {
    let token = read_token(token_file)?;
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", token);
    Ok(request)
}

fn read_token(file: &Path) -> Result<MetadataValue<Ascii>, Unavailable> {
    let token = std::fs::read_to_string(file)
        .map_err(|error| Unavailable(format!("cannot read {}: {error}", file.display()).into()))?;
    let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.trim())
        .parse()
        .map_err(|_| Unavailable(format!("{} contains no token", file.display()).into()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err needs")]
fn unavailable(status: Status) -> Unavailable {
    Unavailable(format!("{:?}: {}", status.code(), status.message()).into())
}

fn unusable(error: InvalidMessage) -> Unavailable {
    Unavailable(Box::new(error))
}
