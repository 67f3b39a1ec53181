//! Keeps the batches of several active nodeset-controller replicas apart.
//!
//! A replica asks before the first write of a batch ([`Expectations::begin`]) and says when every write was answered
//! ([`Expectations::done`]). One batch per NodeSet is open at a time; it is granted only to a plan whose view holds
//! everything that earlier batches did, and within budgets shared by all replicas.
//!
//! [`Machine`] decides all this without clock and without I/O, [`Embedded`] runs it inside of the one replica that is
//! active, and [`BatchClock`] tells a holder until when it may send.

mod embedded;
mod machine;
mod messages;
mod ownership;
pub mod proto;
mod replica;
mod stable_hash;
mod timing;

pub use embedded::{Clock, Embedded};
pub use machine::{Limits, Machine, OPS_PER_BATCH, Parameters, Predecessor};
pub use messages::{
    Answer, Basis, BatchId, Begin, Counters, Epoch, Granted, Heartbeat, Membership, NodeSetName, OpenBatch,
    Ops, ReplicaId, Status, Wait, WaitReason, WaitingNodeSet,
};
pub use ownership::owner_of;
pub use replica::BatchClock;
pub use timing::{Below, Timing, TimingError};

use futures::future::BoxFuture;
use std::error::Error;

/// Whom a replica asks, in its own process or over the network.
pub trait Expectations: Send + Sync {
    /// Asks to perform a batch. Repeating a request with the same batch id is safe and gives the same grant.
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>>;

    /// Ends a batch all of whose writes were answered, and gives the basis of a view that has seen its results; none
    /// if the batch is not known (any more). Safe to repeat.
    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>>;

    /// Whether the NodeSets of a cluster are this replica's, as far as it knows.
    fn owns(&self, cluster_key: &str) -> bool;

    /// The constants that holder and service must agree on.
    fn timing(&self) -> Timing;
}

/// Nobody can say whether a batch may begin, so none may.
#[derive(Debug, thiserror::Error)]
#[error("the expectations service gave no answer")]
pub struct Unavailable(#[source] pub Box<dyn Error + Send + Sync>);
