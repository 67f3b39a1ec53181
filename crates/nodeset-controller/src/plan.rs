//! Decides what to do about a NodeSet. No I/O, no clock, no order of chance: the same view and time give the same plan.

mod claims;
mod cordon_reason;
mod daemons;
mod decide;
mod drain;
pub mod effect;
mod features;
mod finalizers;
mod fit;
mod job_state;
mod lifecycle;
mod membership;
mod mirror;
mod obstacle;
mod pins;
mod records;
mod removal_order;
mod replicas;
mod reservation;
mod revision;
#[cfg(test)]
pub mod testing;
mod update;

#[cfg(test)]
pub mod fixture;
#[cfg(test)]
pub use fixture::short;
#[cfg(test)]
mod tests;

pub use decide::plan;
pub use drain::is_foreign;
pub use effect::{DeleteReason, Drain, Effect, Evidence, NewPod, NodeMirror, PodDeletion, PodMirror, Undo};
pub use finalizers::{DeletionWait, PartitionState, is_force_deleted, partition_state};
pub use lifecycle::{WaitFor, Waiting};
pub use membership::missing_label;
pub use mirror::slurm_state_names;
pub use obstacle::Obstacle;
pub use pins::Pins;
pub use records::unresponsive_record_of;
pub use reservation::ReservationStatus;
pub use revision::RevisionStep;

use crate::worker::Worker;
use revision::Revisions;
use std::time::Duration;

/// What to do about a NodeSet.
pub struct Plan {
    /// Its workers.
    pub workers: Vec<Worker>,
    /// How many there should be.
    pub desired: usize,
    /// Its revisions.
    pub revisions: Revisions,
    /// The finalizers that the NodeSet should have first, if it lacks one. Before that nobody comes.
    pub add_finalizers: Option<Vec<String>>,
    /// Writes that need a batch, in the order of their importance.
    pub effects: Vec<Effect>,
    /// What pods should say.
    pub pod_mirrors: Vec<PodMirror>,
    /// What Slurm nodes should say.
    pub node_mirrors: Vec<NodeMirror>,
    /// Who should leave and cannot yet.
    pub waiting: Vec<Waiting>,
    /// What the NodeSet waits for, if it is being deleted.
    pub deletion: Option<DeletionWait>,
    /// What to tell of the reservation in which it is updated.
    pub reservation: ReservationStatus,
    /// Which Kubernetes node each number keeps to.
    pub pins: Option<Pins>,
    /// What stands in the way.
    pub obstacles: Vec<Obstacle>,
    /// When to look again although nothing that is watched changed.
    pub requeue_after: Option<Duration>,
}
