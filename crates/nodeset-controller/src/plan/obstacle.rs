//! Why a NodeSet cannot be brought to its desired state.

use super::reservation::ScheduleError;
use crate::build::BuildError;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, MissingReference};
use std::sync::Arc;

/// Maximum number of nodes in a Slurm cluster.
pub const MAX_NODES: usize = 65_536;

/// Why a part of the plan is not carried out. Running workers are left as they are.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// An object that the spec refers to does not exist.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// An object that the spec refers to cannot be read.
    #[error(transparent)]
    Reference(#[from] Arc<ReferenceError>),
    /// Worker pods cannot be built until the spec is edited.
    #[error(transparent)]
    Build(#[from] BuildError),
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

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::Missing(missing) => missing.class(),
            Self::Reference(error) => error.class(),
            Self::Build(_)
            | Self::Replicas(_)
            | Self::Requirement(_)
            | Self::Contested(_)
            | Self::Schedule(_) => Class::Invalid,
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.category(),
            Self::Reference(error) => error.category(),
            Self::Build(_) | Self::Replicas(_) | Self::Requirement(_) => "InvalidSpec",
            Self::Contested(_) => "ConflictingController",
            Self::Schedule(error) => error.category(),
        }
    }
}
