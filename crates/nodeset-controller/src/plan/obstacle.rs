//! What keeps a NodeSet from being what it should be.

use super::reservation::ScheduleError;
use crate::build::BuildError;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, MissingReference};
use std::sync::Arc;

/// Most nodes that one Slurm cluster can have.
pub const MOST_NODES: usize = 65_536;

/// Why something is not done. What runs goes on as it is.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// Something that the spec refers to is not there.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// Something that the spec refers to cannot be read.
    #[error(transparent)]
    Reference(#[from] Arc<ReferenceError>),
    /// Worker pods cannot be built; only an edit helps.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Nobody can make sense of a requirement of the node affinity; nobody new comes.
    #[error("spec.template.spec.affinity: {0} is no requirement that a node could meet")]
    Requirement(String),
    /// Somebody else controls a claim.
    #[error(
        "PersistentVolumeClaim {0} is controlled by somebody else, the retention policy is ignored for it"
    )]
    Contested(String),
    /// There can be no such number of workers.
    #[error("spec.replicas: {0} is more than the {MOST_NODES} nodes that a Slurm cluster can have")]
    Replicas(usize),
    /// There is no reservation as the spec asks for one.
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
