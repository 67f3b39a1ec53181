//! The Slurm clusters that workers belong to: what is known of each, kept fresh in the background, and the writes to it.
//!
//! [`Clusters`] has one task for each cluster that somebody asked about lately. A decision reads a [`View`] from memory
//! and never waits for Slurm; who is about to do what cannot be undone asks [`Cluster::list_nodes_live`] first. All writes go through
//! [`Cluster`], so that a view never passes off as news what was read before them.

mod absences;
mod cluster;
mod clusters;
mod connect;
mod connection;
mod endpoint;
mod jobs;
mod metrics;
mod poll;
mod poll_schedule;
pub mod reachability;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod write_log;

pub use cluster::Cluster;
#[cfg(test)]
pub use clusters::ClusterDeps;
pub use clusters::Clusters;
#[cfg(test)]
pub use connect::{Connect, KeyError};
pub use poll_schedule::Queries;
#[cfg(test)]
pub use view::{Jobs, Snapshot};
pub use view::{Known, NodeLookup, View};

use kube::ResourceExt;
use slinky_api::v1beta1::NodeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which cluster: that of a Controller. The same name in another namespace is another cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterKey {
    /// Namespace of the Controller, and of everything that refers to it.
    pub namespace: String,
    /// Name of the Controller.
    pub controller: String,
}

impl ClusterKey {
    /// The cluster that the workers of a NodeSet belong to.
    pub fn of(nodeset: &NodeSet) -> Self {
        Self {
            namespace: nodeset.namespace().unwrap_or_default(),
            controller: nodeset.spec.controller_ref.name.clone(),
        }
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.controller)
    }
}

/// Locks what stays whole between any two statements under the lock, so that a panic elsewhere does not spread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
