//! Why a child cannot be built. Only an edit of what the user wrote helps.

use crate::service::ServiceError;
use crate::typed::TypeMismatch;

/// Why a child cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Something that the user wrote is not what it should be.
    #[error(transparent)]
    TypeMismatch(#[from] TypeMismatch),
    /// The Service makes no sense.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// All of it together is no object of Kubernetes.
    #[error("the object cannot be read back")]
    Malformed(#[from] serde_json::Error),
}
