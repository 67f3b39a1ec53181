//! Why a child cannot be built. Only an edit of the custom resource helps.

use crate::typed::TypeMismatch;
use slinky_api::names::InvalidHost;

/// Why a child cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A field of the user does not fit its type.
    #[error(transparent)]
    TypeMismatch(#[from] TypeMismatch),
    /// The user's spec of a Service does not fit its type.
    #[error("service cannot be built")]
    Service(#[source] TypeMismatch),
    /// Two ports of a Service have the same name.
    #[error("error validating Ports: port name '{0}' is already taken by another port")]
    PortName(String),
    /// Two ports of a Service have the same number.
    #[error("error validating Ports: port number '{0}' is already taken by another port")]
    PortNumber(i64),
    /// The Controller has an invalid address.
    #[error("the Controller's {0}")]
    ConfigServer(#[from] InvalidHost),
    /// The merged JSON does not fit the type of the child.
    #[error("the object cannot be read back")]
    Malformed(#[from] serde_json::Error),
}
