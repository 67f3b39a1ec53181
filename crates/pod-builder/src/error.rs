//! Why a child cannot be built. Only an edit of the custom resource helps.

use crate::service::ServiceError;
use crate::typed::TypeMismatch;

/// Why a child cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A field of the user does not fit its type.
    #[error(transparent)]
    TypeMismatch(#[from] TypeMismatch),
    /// The Service is invalid.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The merged JSON does not fit the type of the child.
    #[error("the object cannot be read back")]
    Malformed(#[from] serde_json::Error),
}
