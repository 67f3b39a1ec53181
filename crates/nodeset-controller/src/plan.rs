//! Decides what to do about a NodeSet. No I/O, no clock, no order of chance: the same view and time give the same plan.

mod claims;
mod conduct;
mod cordon_reason;
mod daemons;
mod decide;
pub mod effect;
mod features;
pub mod fit;
mod membership;
mod mirror;
mod obstacle;
mod order;
mod pins;
mod records;
mod release;
mod reservation;
mod revision;
mod roster;
mod service;
#[cfg(test)]
pub mod testing;
mod update;
mod work;

#[cfg(test)]
pub mod scene;
#[cfg(test)]
pub use scene::short;
#[cfg(test)]
mod tests;

pub use conduct::{WaitFor, Waiting};
pub use daemons::Nodes;
pub use decide::plan;
pub use effect::{Drain, Effect, Evidence, NewPod, NodeMirror, PodMirror, Removal, Undo, Why};
pub use fit::expected_hostname;
pub use membership::missing_label;
pub use mirror::states;
pub use obstacle::Obstacle;
pub use pins::Pins;
pub use records::abandoned_by;
pub use release::{Leaving, PartitionFate, is_forced, partition_fate, records_matter};
pub use reservation::{Told, matters as reservation_matters};
pub use revision::RevisionStep;
pub use roster::Backoff;
pub use service::is_foreign;

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
    pub hold: Option<Vec<String>>,
    /// Writes that need a batch, in the order of their importance.
    pub effects: Vec<Effect>,
    /// What pods should say.
    pub pod_mirrors: Vec<PodMirror>,
    /// What Slurm nodes should say.
    pub node_mirrors: Vec<NodeMirror>,
    /// Who should leave and cannot yet.
    pub waiting: Vec<Waiting>,
    /// What the NodeSet waits for, if it is being deleted.
    pub leaving: Option<Leaving>,
    /// What to tell of the reservation in which it is updated.
    pub told: Told,
    /// Which Kubernetes node each number keeps to.
    pub pins: Option<Pins>,
    /// What stands in the way.
    pub obstacles: Vec<Obstacle>,
    /// When to look again although nothing that is watched changed.
    pub again: Option<Duration>,
}
