//! Reasons why a child of a Controller cannot be built.

use crate::build::{ConfigError, LARGEST};
use operator_runtime::{Class, Classify};
use std::time::Duration;

/// Why a child cannot be built. The live child stays as it is.
pub type Obstacle = operator_runtime::Obstacle<ControllerObstacle>;

/// The obstacles that only Controllers have.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControllerObstacle {
    /// The configuration cannot be rendered, or slurmctld would refuse it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A reference has a name that no ConfigMap can have.
    #[error("{0:?} cannot be the name of a ConfigMap ({1})")]
    Misnamed(String, &'static str),
    /// No ConfigMap can hold the configuration.
    #[error(
        "the configuration has {0} bytes with configFileRefs, scripts and jwksKeyRef, but a ConfigMap holds at most {LARGEST}: \
         shorten or remove some of these files"
    )]
    TooLarge(usize),
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
    /// Neither the desired configuration nor one in force is available.
    #[error("slurmctld has no configuration to start with")]
    NoConfig,
}

impl From<ControllerObstacle> for Obstacle {
    fn from(obstacle: ControllerObstacle) -> Self {
        Self::Specific(obstacle)
    }
}

impl Classify for ControllerObstacle {
    fn class(&self) -> Class {
        match self {
            Self::Config(_)
            | Self::Misnamed(..)
            | Self::TooLarge(_)
            | Self::NothingShared
            | Self::OwnVolume
            | Self::NoConfig => Class::Invalid,
            // PersistentVolumeClaims are not watched.
            Self::NotShared(_) => Class::Waiting(Duration::from_mins(1)),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Config(ConfigError::Refused(_)) => "ConfigRefused",
            Self::Config(
                ConfigError::Value(_)
                | ConfigError::Host(_)
                | ConfigError::ClusterName(_)
                | ConfigError::Backups(_),
            )
            | Self::Misnamed(..)
            | Self::NothingShared
            | Self::OwnVolume => "InvalidSpec",
            Self::Config(ConfigError::Size(_)) | Self::TooLarge(_) => "ConfigTooLarge",
            Self::NotShared(_) => "ClaimNotShared",
            Self::NoConfig => "NoConfig",
        }
    }
}
