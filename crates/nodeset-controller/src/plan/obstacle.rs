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
    /// Fewer workers than none, or more than a Slurm cluster can have.
    #[error("spec.replicas: {0} is not a number from 0 to {MAX_NODES}, the most nodes of a Slurm cluster")]
    Replicas(i32),
    /// Workers serve another Slurm cluster than the NodeSet now names.
    #[error(
        "spec.controllerRef now names {new}; workers that serve {old} are left as they are ({count}, among them {pod}): \
         change it back, or delete their pods once their jobs have ended"
    )]
    OtherCluster {
        /// The cluster that the workers serve.
        old: String,
        /// The cluster that the NodeSet names.
        new: String,
        /// Their number.
        count: usize,
        /// The pod of one of them.
        pod: String,
    },
    /// The hostname for a Kubernetes node cannot be used; its worker stays as it is.
    #[error("Kubernetes node {node}: hostname {hostname:?} cannot be used: {problem}")]
    Hostname {
        /// The Kubernetes node.
        node: String,
        /// The hostname, from its annotation or its name.
        hostname: String,
        /// Why not.
        problem: String,
    },
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
            Self::OtherCluster { .. } => "ControllerChanged",
            Self::Hostname { .. } => "InvalidHostname",
            Self::Contested(_) => "ConflictingController",
            Self::Schedule(error) => error.category(),
        }
    }
}
