//! What keeps a child of a Controller from being made.

use crate::build::ConfigError;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, MissingReference};
use pod_builder::BuildError;
use std::sync::Arc;
use std::time::Duration;

/// Why a child is not made.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// Something that the spec refers to is not there.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// Something that the spec refers to cannot be read.
    #[error(transparent)]
    Reference(#[from] Arc<ReferenceError>),
    /// There can be no such configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A ConfigMap cannot have this name.
    #[error("{0:?} cannot be the name of a ConfigMap ({1})")]
    Misnamed(String, &'static str),
    /// Several daemons need a state that they share.
    #[error("ha.enabled needs persistence.existingClaim to name a claim that all daemons can mount")]
    NothingShared,
    /// Several daemons cannot mount the claim.
    #[error(
        "ha.enabled needs a claim with access mode ReadWriteMany, which PersistentVolumeClaim {0} is not"
    )]
    NotShared(String),
    /// Several daemons would each have a state of its own.
    #[error(
        "ha.enabled needs a state that all daemons share, but slurmctld keeps the volume that it was made with: \
         persistence cannot change later"
    )]
    OwnVolume,
    /// The children would have names that Kubernetes does not take.
    #[error("metadata.name: {name:?} cannot be the name of a StatefulSet ({problem})")]
    Name {
        /// The name of the StatefulSet.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is nothing that slurmctld could start with.
    #[error("slurmctld has no configuration to start with")]
    NoConfig,
}

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::Missing(missing) => missing.class(),
            Self::Reference(error) => error.class(),
            Self::Config(_)
            | Self::Build(_)
            | Self::Misnamed(..)
            | Self::NothingShared
            | Self::OwnVolume
            | Self::Name { .. }
            | Self::NoConfig => Class::Invalid,
            // Claims are not watched.
            Self::NotShared(_) => Class::Waiting(Duration::from_mins(1)),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.category(),
            Self::Reference(error) => error.category(),
            Self::Config(ConfigError::Refused(_)) => "ConfigRefused",
            Self::Config(ConfigError::Value(_))
            | Self::Build(_)
            | Self::Misnamed(..)
            | Self::NothingShared
            | Self::OwnVolume => "InvalidSpec",
            Self::Name { .. } => "InvalidName",
            Self::NotShared(_) => "ClaimNotShared",
            Self::NoConfig => "NoConfig",
        }
    }
}
