//! Plans the changes for a NodeSet. A pure function: the same observation and time give the same plan.

mod children;
mod claims;
mod cordons;
mod daemons;
mod decide;
mod drain_owner;
mod drain_reason;
pub mod effect;
mod features;
mod finalizers;
mod fit;
mod job_state;
mod lifecycle;
mod membership;
mod metadata;
mod mirror;
mod obstacle;
mod pins;
mod records;
mod registration;
mod removal_order;
mod replicas;
mod reservation;
mod revision;
#[cfg(test)]
pub mod testing;
mod update;
mod waiting;

#[cfg(test)]
pub mod fixture;
#[cfg(test)]
pub use fixture::summarize;
#[cfg(test)]
mod tests;

pub use children::Children;
pub use decide::plan;
pub use drain_owner::is_foreign;
pub use effect::{DeleteReason, Drain, Effect, Evidence, NewPod, NodeMirror, PodDeletion, PodMirror, Undo};
pub use finalizers::{DeletionWait, PartitionState, is_force_deleted, partition_state};
pub use membership::missing_label;
pub use metadata::MetadataChange;
pub use mirror::slurm_state_names;
#[cfg(test)]
pub use obstacle::NodeSetObstacle;
pub use obstacle::Obstacle;
pub use pins::Pins;
pub use records::unresponsive_record_of;
pub use registration::{may_be_at, registered_at};
pub use reservation::ReservationStatus;
pub use revision::RevisionStep;
pub use update::UselessWorker;
pub use waiting::{WaitFor, Waiting};

use crate::worker::Worker;
use jiff::SignedDuration;
use revision::Revisions;
use std::time::Duration;

/// The changes that bring a NodeSet to its desired state, and the facts that its status reports.
pub struct Plan {
    /// The worker pods of the NodeSet, including orphans about to be adopted.
    pub workers: Vec<Worker>,
    /// Desired number of workers.
    pub desired: usize,
    /// How long a worker must be ready to count as available.
    pub min_ready: SignedDuration,
    /// The current revision, and the changes to stored revisions.
    pub revisions: Revisions,
    /// Child objects to apply; `None` if existing ones stay as they are.
    pub children: Option<Children>,
    /// Changes of the NodeSet's own finalizers and annotations.
    pub metadata: Option<MetadataChange>,
    /// Writes that need a batch, most important first.
    pub effects: Vec<Effect>,
    /// Updates of pod metadata and conditions that mirror the Slurm node.
    pub pod_mirrors: Vec<PodMirror>,
    /// Updates of Slurm nodes that mirror the pod and its Kubernetes node.
    pub node_mirrors: Vec<NodeMirror>,
    /// Workers that should be removed and cannot be yet.
    pub waiting: Vec<Waiting>,
    /// Updated workers that Slurm gives no jobs, if the update waits for them.
    pub useless: Vec<UselessWorker>,
    /// What blocks the deletion of the NodeSet, if it is being deleted.
    pub deletion: Option<DeletionWait>,
    /// State of the update reservation, for the status.
    pub reservation: ReservationStatus,
    /// The Kubernetes node that each ordinal is pinned to.
    pub pins: Option<Pins>,
    /// Why parts of the plan cannot be carried out.
    pub obstacles: Vec<Obstacle>,
    /// When to reconcile again although no watched object changed.
    pub requeue_after: Option<Duration>,
}
