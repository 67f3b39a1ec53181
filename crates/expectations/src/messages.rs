//! Messages between replicas and the service, as plain values.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

/// Random identity of one nodeset-controller process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(Arc<str>);

impl ReplicaId {
    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for ReplicaId {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// Random identity of one term of the service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(Arc<str>);

impl Epoch {
    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for Epoch {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// Namespace and name of a NodeSet. Names of pods, claims and Slurm nodes derive from them, so a NodeSet that was
/// re-created has to wait for the open batch of its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSetName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name in it.
    pub name: Arc<str>,
}

/// Unique id of a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// The holder of the batch.
    pub replica: ReplicaId,
    /// Chosen by the replica, never used twice.
    pub counter: u64,
}

impl Display for BatchId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.replica.as_str(), self.counter)
    }
}

/// "My view contains everything up to here." Compared for equality only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Basis {
    /// The epoch in which the number was assigned.
    pub epoch: Epoch,
    /// Assigned when a batch of the NodeSet ended, never used twice within the epoch.
    pub number: u64,
}

/// Number of effects in a batch, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ops {
    /// Pods to create, each with its claims.
    pub creates: u32,
    /// Pods to delete.
    pub deletes: u32,
    /// All other effects: marks, drains, undrains, claims alone, reservations, node records, finalizers.
    pub others: u32,
}

impl Ops {
    /// Whether the batch has nothing but creates: its late writes can at worst leave a surplus pod.
    pub fn only_creates(self) -> bool {
        self.deletes == 0 && self.others == 0
    }
}

/// Requests one batch, after planning and before its first effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// Id of the batch, the same in every repetition of the request.
    pub batch: BatchId,
    /// `<namespace>/<name>` of the Controller: NodeSets of one Slurm cluster stay on one replica.
    pub cluster_key: String,
    /// The NodeSet that the batch writes for.
    pub nodeset: NodeSetName,
    /// UID of the NodeSet.
    pub uid: Arc<str>,
    /// Generation of the NodeSet that the plan was made from.
    pub generation: i64,
    /// `None` if the replica cannot prove what its view contains.
    pub basis: Option<Basis>,
    /// The effects of the plan.
    pub ops: Ops,
}

/// Answer to a [`Begin`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Perform at most this many, in the order of the plan.
    Granted(Granted),
    /// Another replica owns the cluster key: drop the work.
    NotOwner(Membership),
    /// Repeat the request later.
    Wait(Wait),
    /// Read everything live, plan again, and send [`Begin`] with this basis.
    NeedFresh(Basis),
}

/// How many of the requested creates and deletes may be performed. Other effects are never cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Pods to create.
    pub creates: u32,
    /// Pods to delete.
    pub deletes: u32,
}

/// When to repeat a request, and why it was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Differs between NodeSets, so that they do not all retry at once.
    pub after: Duration,
    /// Why the batch was not granted.
    pub reason: WaitReason,
}

/// Why a batch was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// A batch of this NodeSet is open.
    OpenBatch,
    /// A batch ran out, or the service just started: only creates are granted until every earlier write has landed.
    HalfOpen,
    /// All replicas together have as many creates or deletes in flight as the limits allow.
    Budget,
    /// The service is shutting down gracefully and grants no more batches.
    Stopping,
}

/// Keeps a replica in the membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The sender.
    pub replica: ReplicaId,
    /// The last heartbeat: the replica shuts down and leaves at once.
    pub leaving: bool,
}

/// The live replicas, and the timing that all of them use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The epoch of the service that published it.
    pub epoch: Epoch,
    /// Incremented by every change within an epoch.
    pub version: u64,
    /// Live replicas, sorted.
    pub live: Vec<ReplicaId>,
    /// How long a batch may send writes, counted from the first sending of its [`Begin`].
    pub lease: Duration,
    /// How long after that an unfinished batch still blocks the next one.
    pub grace: Duration,
}

/// State of the service, for users and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Epoch and live replicas.
    pub membership: Membership,
    /// Batches that neither ended nor ran out, by NodeSet.
    pub open: Vec<OpenBatch>,
    /// NodeSets that were answered `Wait` and are expected to retry, by name.
    pub waiting: Vec<WaitingNodeSet>,
    /// Time until the half-open time at the start of the epoch ends.
    pub half_open_left: Duration,
    /// Events of this epoch.
    pub counters: Counters,
}

/// A batch that was granted and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBatch {
    /// The NodeSet that the batch writes for.
    pub nodeset: NodeSetName,
    /// The batch and its holder.
    pub batch: BatchId,
    /// Time since it was granted.
    pub age: Duration,
    /// Granted creates and deletes.
    pub granted: Granted,
    /// Other effects, as requested.
    pub others: u32,
}

/// A NodeSet whose last `Begin` was answered `Wait`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingNodeSet {
    /// The NodeSet.
    pub nodeset: NodeSetName,
    /// Why its batch was not granted.
    pub reason: WaitReason,
    /// Time since the first answer with this reason.
    pub age: Duration,
}

/// Event counts of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches opened.
    pub granted: u64,
    /// Grants returned again for a repeated request.
    pub repeated: u64,
    /// Requests from replicas that do not own the cluster.
    pub not_owner: u64,
    /// Waits for an open batch.
    pub wait_open_batch: u64,
    /// Waits for half-open time to end.
    pub wait_half_open: u64,
    /// Waits for budget.
    pub wait_budget: u64,
    /// Waits because the service is shutting down.
    pub wait_stopping: u64,
    /// Requests planned from a stale view.
    pub need_fresh: u64,
    /// Batches ended by their holders.
    pub closed: u64,
    /// Batches that ran out.
    pub ran_out: u64,
}
