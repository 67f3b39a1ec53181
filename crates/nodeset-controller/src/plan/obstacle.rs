//! Why a NodeSet cannot be brought to its desired state.

use super::reservation::ScheduleError;
use operator_runtime::{Class, Classify};

/// Maximum number of nodes in a Slurm cluster.
pub const MAX_NODES: usize = 65_536;

/// Why a part of the plan is not carried out. Running workers are left as they are.
pub type Obstacle = operator_runtime::Obstacle<NodeSetObstacle>;

/// The obstacles that only NodeSets have.
#[derive(Debug, thiserror::Error)]
pub enum NodeSetObstacle {
    /// A node affinity requirement is invalid; no pods are created for nodes that it applies to.
    #[error("spec.template.spec.affinity: {0} is not a valid node requirement")]
    Requirement(String),
    /// Another owner controls a claim.
    #[error("PersistentVolumeClaim {0} is controlled by another owner; its retention policy is not applied")]
    Contested(String),
    /// More workers than a Slurm cluster can have.
    #[error("spec.replicas: {0} exceeds the maximum of {MAX_NODES} nodes in a Slurm cluster")]
    Replicas(usize),
    /// The reservation for the scheduled update cannot be created or changed.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl Classify for NodeSetObstacle {
    fn class(&self) -> Class {
        Class::Invalid
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Replicas(_) | Self::Requirement(_) => "InvalidSpec",
            Self::Contested(_) => "ConflictingController",
            Self::Schedule(error) => error.category(),
        }
    }
}
