//! What a decision may know of a Slurm cluster. No I/O.

use jiff::Timestamp;
use slurm_rest::{Deadline, Node, Reservation};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of a Slurm cluster.
#[derive(Clone, Debug)]
pub enum View {
    /// Nobody can be asked, and nobody is expected to: workers are pods and no more.
    NotExpected,
    /// There is a cluster, and nothing certain is known of it now.
    Unknown {
        /// Why, for people.
        why: String,
        /// Whether it should have answered by now. If not, this process has only just come to ask: no less unknown to
        /// decisions, but no trouble to tell of either.
        overdue: bool,
    },
    /// It was asked a moment ago.
    Known(Known),
}

/// A recent look at a cluster, less what has been written since.
#[derive(Clone, Debug)]
pub struct Known {
    /// What the cluster said.
    pub snapshot: Arc<Snapshot>,
    /// Nodes about which the snapshot proves nothing: written to since it was asked for, or missing from it for too
    /// short a time to be gone.
    pub uncertain: BTreeSet<String>,
    /// Whether it is so short since the first answer that nodes which were there before may still come back.
    pub is_new: bool,
}

/// What a Slurm cluster said at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was asked, on our clock.
    pub asked: Timestamp,
    /// All its nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    /// What its jobs hold, if that was asked.
    pub jobs: Option<Jobs>,
    /// Its reservations by name, if that was asked.
    pub reservations: Option<BTreeMap<String, Reservation>>,
}

/// What jobs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// When the last running job of each node is over at the latest.
    pub deadlines: BTreeMap<String, Deadline>,
    /// How many job records, finished ones too, name each partition.
    pub by_partition: BTreeMap<String, usize>,
    /// The partitions that took new jobs before the jobs were asked for, if that was asked. No job came to another one
    /// since.
    pub open_partitions: Option<BTreeSet<String>>,
}

/// What is known of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLookup<'a> {
    /// Nothing that a decision may rest on.
    Unknown,
    /// Slurm has no such node.
    Absent,
    /// Slurm has it, like this.
    Present(&'a Node),
}

impl View {
    /// Of a cluster that should have answered.
    pub const fn unreachable(why: String) -> Self {
        Self::Unknown { why, overdue: true }
    }

    /// Of a cluster that had no time to answer.
    pub const fn not_polled_yet(why: String) -> Self {
        Self::Unknown { why, overdue: false }
    }

    /// Whether the cluster had no time to answer.
    pub const fn is_not_polled_yet(&self) -> bool {
        matches!(self, Self::Unknown { overdue: false, .. })
    }

    /// What is known of one node.
    pub fn lookup(&self, name: &str) -> NodeLookup<'_> {
        match self {
            Self::NotExpected => NodeLookup::Absent,
            Self::Unknown { .. } => NodeLookup::Unknown,
            Self::Known(known) if known.uncertain.contains(name) => NodeLookup::Unknown,
            Self::Known(known) => {
                known.snapshot.nodes.get(name).map_or(NodeLookup::Absent, NodeLookup::Present)
            }
        }
    }

    /// What is known of a node that was there once. A slurmctld that starts anew shows no node until their slurmds come
    /// back, and one that was never heard before may just have started.
    pub fn lookup_registered(&self, name: &str) -> NodeLookup<'_> {
        match (self, self.lookup(name)) {
            (Self::Known(Known { is_new: true, .. }), NodeLookup::Absent) => NodeLookup::Unknown,
            (_, lookup) => lookup,
        }
    }

    /// The snapshot, if there is one.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Known(known) => Some(&known.snapshot),
            Self::NotExpected | Self::Unknown { .. } => None,
        }
    }
}
