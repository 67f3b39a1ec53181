//! What replicas and the service say to each other, as plain values.

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

impl Display for ReplicaId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Random identity of one life of the service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(Arc<str>);

impl<T: Into<Arc<str>>> From<T> for Epoch {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Display for Epoch {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Namespace and name of a NodeSet. Names of pods, claims and Slurm nodes come from them, so a NodeSet that was made
/// anew has to wait for the batch of its predecessor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSetName {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name in it.
    pub name: Arc<str>,
}

impl Display for NodeSetName {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Names one batch for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// Who holds the batch.
    pub replica: ReplicaId,
    /// Chosen by the replica, never used twice.
    pub counter: u64,
}

impl Display for BatchId {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.replica, self.counter)
    }
}

/// "My view contains everything up to here." Compared for equality only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Basis {
    /// The life of the service that took the number.
    pub epoch: Epoch,
    /// Taken when a batch of the NodeSet ended, never used twice within the epoch.
    pub number: u64,
}

/// How many effects a batch has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ops {
    /// Pods to create, each with its claims.
    pub creates: u32,
    /// Pods to delete.
    pub deletes: u32,
    /// All else: marks, drains, undrains, claims alone, reservations, node records, finalizers.
    pub others: u32,
}

impl Ops {
    /// Whether late writes of the batch can do no harm but leave a surplus pod.
    pub fn only_creates(self) -> bool {
        self.deletes == 0 && self.others == 0
    }
}

/// Asks to perform one batch, after planning and before its first effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// The batch, the same in every repetition of the request.
    pub batch: BatchId,
    /// `<namespace>/<name>` of the Controller: NodeSets of one Slurm cluster stay on one replica.
    pub cluster_key: String,
    /// Whose pods.
    pub nodeset: NodeSetName,
    /// UID of the NodeSet.
    pub uid: Arc<str>,
    /// Generation of the NodeSet that the plan was made from.
    pub generation: i64,
    /// None if the replica cannot say what its view contains.
    pub basis: Option<Basis>,
    /// What the plan wants to do.
    pub ops: Ops,
}

/// What becomes of a [`Begin`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Perform at most so many, the first of the plan first.
    Granted(Granted),
    /// Another replica owns the cluster key: drop the work.
    NotOwner(Membership),
    /// Ask again later.
    Wait(Wait),
    /// Read everything live, plan again, and ask with this basis.
    NeedFresh(Basis),
}

/// How much of what was asked for may be done. Other effects are never cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Granted {
    /// Pods to create.
    pub creates: u32,
    /// Pods to delete.
    pub deletes: u32,
}

/// When to ask again, and why not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// From now on; differs between NodeSets, so that they do not come back together.
    pub after: Duration,
    /// What stands in the way.
    pub reason: WaitReason,
}

/// What stands in the way of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// A batch of this NodeSet is open.
    OpenBatch,
    /// A batch ran out, or the service is new: until the last write must have landed only creates are granted.
    HalfOpen,
    /// All replicas together have as much in flight as is allowed.
    Budget,
    /// The service stops in good order and grants nothing more.
    Stopping,
}

/// One sign of life of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// Whose.
    pub replica: ReplicaId,
    /// The last one: the replica stops and leaves at once.
    pub leaving: bool,
}

/// Who is alive, and what all have to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The life of the service that says so.
    pub epoch: Epoch,
    /// Grows with every change within an epoch.
    pub version: u64,
    /// Replicas that are alive, sorted.
    pub live: Vec<ReplicaId>,
    /// How long a batch may send writes, counted from the first sending of its [`Begin`].
    pub lease: Duration,
    /// How long after that an unfinished batch still blocks the next one.
    pub grace: Duration,
}

/// What the service knows, for people and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Epoch and members.
    pub membership: Membership,
    /// Batches that neither ended nor ran out, by NodeSet.
    pub open: Vec<OpenBatch>,
    /// NodeSets that were told to wait and are expected back, by name.
    pub waiting: Vec<WaitingNodeSet>,
    /// What happened in this epoch.
    pub counters: Counters,
}

/// A batch that was granted and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBatch {
    /// Whose pods.
    pub nodeset: NodeSetName,
    /// The batch and its holder.
    pub batch: BatchId,
    /// Since it was granted.
    pub age: Duration,
    /// What was granted.
    pub granted: Granted,
    /// Other effects, as asked for.
    pub others: u32,
}

/// A NodeSet whose replica was told to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingNodeSet {
    /// Which one.
    pub nodeset: NodeSetName,
    /// What stands in its way.
    pub reason: WaitReason,
    /// Since that reason was given first.
    pub age: Duration,
}

/// How often what happened in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches opened.
    pub granted: u64,
    /// Grants given again, because the request was repeated.
    pub repeated: u64,
    /// Requests of replicas that do not own the cluster.
    pub not_owner: u64,
    /// Waits for an open batch.
    pub wait_open_batch: u64,
    /// Waits for half-open time to end.
    pub wait_half_open: u64,
    /// Waits for budget.
    pub wait_budget: u64,
    /// Waits because the service stops.
    pub wait_stopping: u64,
    /// Views found to be stale.
    pub need_fresh: u64,
    /// Batches ended by their holders.
    pub closed: u64,
    /// Batches that ran out.
    pub ran_out: u64,
}
