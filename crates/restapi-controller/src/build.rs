//! The children of a RestApi. Pure.

mod deployment;
mod service;

pub use deployment::build_deployment;
pub use service::build_service;

use operator_runtime::{Class, Classify};
use pod_builder::{IllTyped, ServiceError};

/// Why a child cannot be built. Only an edit of the RestApi helps.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Something that the user wrote is not what it should be.
    #[error(transparent)]
    IllTyped(#[from] IllTyped),
    /// The Service makes no sense.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// All of it together is no object of Kubernetes.
    #[error("the object cannot be read back")]
    Malformed(#[from] serde_json::Error),
}

impl Classify for BuildError {
    fn class(&self) -> Class {
        Class::Invalid
    }

    fn category(&self) -> &'static str {
        "InvalidSpec"
    }
}
