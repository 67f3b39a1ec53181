//! The Slurm clusters that workers belong to: background polling, live reads, and writes.
//!
//! [`Clusters`] runs one polling task for each cluster that was read lately. Decisions read a cached [`View`] and never wait
//! for Slurm; before an action that cannot be undone the caller awaits [`Cluster::list_nodes_live`]. All writes go through
//! [`Cluster`], so that a view does not present as current a read that started before them.

mod absences;
mod client_factory;
mod cluster;
mod clusters;
mod connection;
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

#[cfg(test)]
pub use client_factory::{ClientFactory, KeyError};
pub use cluster::{Cluster, HeldCluster};
#[cfg(test)]
pub use clusters::ClusterDeps;
pub use clusters::Clusters;
pub use connection::CONCURRENT_SLURM_WRITES;
pub use poll_schedule::Queries;
#[cfg(test)]
pub use view::{Jobs, Snapshot};
pub use view::{Known, NodeLookup, View};

use kube::ResourceExt;
use slinky_api::v1beta1::NodeSet;
use std::fmt;

/// Identifies a cluster by its Controller. The same name in another namespace is another cluster.
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
