//! Coordinates write batches of several active nodeset-controller replicas.
//!
//! A replica requests a batch before its first write ([`Expectations::begin`]) and ends it when every write was
//! answered ([`Expectations::done`]). One batch per NodeSet is open at a time; it is granted only to a plan whose view contains
//! the effects of all earlier batches, and within budgets shared by all replicas.
//!
//! [`Machine`] is the state machine of the service, without clock and I/O. [`Embedded`] runs it inside the only active
//! replica; the binary of this crate runs it as a service, which [`client::Client`] calls. [`BatchClock`] is the deadline
//! of a batch on its holder's clock.

#[cfg(feature = "client")]
pub mod client;
pub mod convert;
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
pub use ownership::{Ownership, owner_of};
pub use replica::BatchClock;
pub use timing::{BelowMinimum, Timing, TimingError};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::error::Error;

/// The expectations service as a replica calls it, in its own process or over the network.
pub trait Expectations: Send + Sync {
    /// Requests a batch. Repeating a request with the same batch id is safe and returns the same grant.
    fn begin(&self, request: Begin) -> BoxFuture<'_, Result<Answer, Unavailable>>;

    /// Ends a batch whose writes were all answered, and returns the basis for views that contain its results; `None` if
    /// the service does not know the batch (any more). Safe to repeat.
    fn done(&self, batch: BatchId) -> BoxFuture<'_, Result<Option<Basis>, Unavailable>>;

    /// What this replica may work on, by the last membership it received.
    fn ownership(&self) -> Ownership;

    /// An item after every change of [`ownership`](Self::ownership). Changes in quick succession may share one.
    fn ownership_changes(&self) -> BoxStream<'static, ()>;

    /// Tells the service which clusters this replica works on, for people who ask it.
    fn report_clusters(&self, cluster_keys: Vec<String>);

    /// The timing constants that holder and service must agree on.
    fn timing(&self) -> Timing;
}

/// The service did not answer, so no batch may begin.
#[derive(Debug, thiserror::Error)]
#[error("the expectations service did not answer")]
pub struct Unavailable(#[source] pub Box<dyn Error + Send + Sync>);
