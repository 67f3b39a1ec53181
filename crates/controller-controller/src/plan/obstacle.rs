//! Reasons why a child of a Controller cannot be built.

use crate::build::ConfigError;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, MissingReference};
use pod_builder::BuildError;
use std::sync::Arc;
use std::time::Duration;

/// Why a child cannot be built. The live child stays as it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Obstacle {
    /// A referenced object does not exist.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// A referenced object cannot be read.
    #[error(transparent)]
    Reference(#[from] Arc<ReferenceError>),
    /// The configuration cannot be rendered, or slurmctld would refuse it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The spec does not make a valid child.
    #[error(transparent)]
    Build(Arc<BuildError>),
    /// A reference has a name that no ConfigMap can have.
    #[error("{0:?} cannot be the name of a ConfigMap ({1})")]
    Misnamed(String, &'static str),
    /// Standby daemons are enabled without a shared PersistentVolumeClaim.
    #[error("ha.enabled needs persistence.existingClaim to name a claim that all daemons can mount")]
    NothingShared,
    /// Only one pod at a time can mount the PersistentVolumeClaim.
    #[error(
        "ha.enabled needs a claim with access mode ReadWriteMany, which PersistentVolumeClaim {0} does not have"
    )]
    NotShared(String),
    /// The StatefulSet has a claim template, so that each daemon would have a state of its own.
    #[error(
        "ha.enabled needs a state that all daemons share, but slurmctld keeps the volume that it was created with: \
         persistence cannot change later"
    )]
    OwnVolume,
    /// The children would have names that Kubernetes does not accept.
    #[error("metadata.name: {name:?} cannot be the name of a StatefulSet ({problem})")]
    Name {
        /// The name of the StatefulSet.
        name: String,
        /// Why Kubernetes does not accept it.
        problem: &'static str,
    },
    /// Neither the desired configuration nor one in force is available.
    #[error("slurmctld has no configuration to start with")]
    NoConfig,
}

impl From<BuildError> for Obstacle {
    fn from(error: BuildError) -> Self {
        Self::Build(Arc::new(error))
    }
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
            // PersistentVolumeClaims are not watched.
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
