//! The view of a Slurm cluster that decisions are based on. No I/O.

use jiff::Timestamp;
use slurm_rest::{Deadline, Node, Reservation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of a Slurm cluster as far as it is known.
#[derive(Clone, Debug)]
pub enum View {
    /// No RestApi configured; pods are managed without Slurm.
    NoRestApi,
    /// The cluster exists, but its current state is unknown.
    Unknown {
        /// Why, for people.
        why: String,
        /// Whether it should have answered by now. If not, polling has only just started: decisions treat it as
        /// unknown, but it is not reported as an error.
        overdue: bool,
    },
    /// The last node list is recent.
    Known(Known),
}

/// A recent snapshot of a cluster, without the nodes for which it is no evidence.
#[derive(Clone, Debug)]
pub struct Known {
    /// The last lists.
    pub snapshot: Arc<Snapshot>,
    /// Nodes for which the snapshot is no evidence: written to since its list was requested, or missing from it for too
    /// short a time to prove that they do not exist.
    pub uncertain: BTreeSet<String>,
    /// Whether the first answer is so recent that nodes that were registered before may still register again.
    pub is_new: bool,
}

/// The content of a Slurm cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When the node list was requested, on our clock.
    pub requested_at: Timestamp,
    /// All nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    /// The jobs, if they were listed.
    pub jobs: Option<Jobs>,
    /// The reservations by name, if they were listed.
    pub reservations: Option<BTreeMap<String, Reservation>>,
}

/// A summary of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// The latest end of the running jobs of each node.
    pub deadlines: BTreeMap<String, Deadline>,
    /// The number of job records, finished ones included, that name each partition.
    pub by_partition: BTreeMap<String, usize>,
    /// The partitions that accepted new jobs before the jobs were listed, if they were listed. No other partition got a
    /// job since.
    pub open_partitions: Option<BTreeSet<String>>,
}

/// The state of one node as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLookup<'a> {
    /// There is no evidence to base a decision on.
    Unknown,
    /// Slurm has no such node.
    Absent,
    /// Slurm has this node.
    Present(&'a Node),
}

impl View {
    /// Of a cluster that should have answered.
    pub const fn unreachable(why: String) -> Self {
        Self::Unknown { why, overdue: true }
    }

    /// Of a cluster whose first answer is not overdue.
    pub const fn not_polled_yet(why: String) -> Self {
        Self::Unknown { why, overdue: false }
    }

    /// Whether the first answer is outstanding and not overdue.
    pub const fn is_not_polled_yet(&self) -> bool {
        matches!(self, Self::Unknown { overdue: false, .. })
    }

    /// The state of one node.
    pub fn lookup(&self, name: &str) -> NodeLookup<'_> {
        match self {
            Self::NoRestApi => NodeLookup::Absent,
            Self::Unknown { .. } => NodeLookup::Unknown,
            Self::Known(known) if known.uncertain.contains(name) => NodeLookup::Unknown,
            Self::Known(known) => {
                known.snapshot.nodes.get(name).map_or(NodeLookup::Absent, NodeLookup::Present)
            }
        }
    }

    /// The state of a node that was registered before. A restarted slurmctld that lost its state has no dynamic nodes
    /// until their slurmds register again, and one that has only just answered for the first time may have restarted.
    pub fn lookup_registered(&self, name: &str) -> NodeLookup<'_> {
        match (self, self.lookup(name)) {
            (Self::Known(Known { is_new: true, .. }), NodeLookup::Absent) => NodeLookup::Unknown,
            (_, lookup) => lookup,
        }
    }

    /// The snapshot, if it is recent.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Known(known) => Some(&known.snapshot),
            Self::NoRestApi | Self::Unknown { .. } => None,
        }
    }
}
