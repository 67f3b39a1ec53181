//! Errors of the spec that prevent building an object. Only an edit of the spec helps.

use pod_builder::{LimitError, TypeMismatch};
use slinky_api::names::InvalidHost;
use slurm_conf::{ExtraItemError, ValueError};

/// Why an object cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A field has the wrong type.
    #[error(transparent)]
    TypeMismatch(#[from] TypeMismatch),
    /// `extraConf` is not a list of `Key=Value` items.
    #[error("extraConf cannot be read")]
    ExtraConf(#[from] ExtraItemError),
    /// The name is not valid in slurm.conf.
    #[error(transparent)]
    SlurmName(#[from] ValueError),
    /// The Controller has an invalid address.
    #[error("the Controller's {0}")]
    ConfigServer(#[from] InvalidHost),
    /// A resource limit is not a quantity.
    #[error("{field}.{limit}: it is not a quantity")]
    Limit {
        /// The field with the limits.
        field: &'static str,
        /// The limit.
        limit: LimitError,
    },
    /// The API server would reject the name.
    #[error("{what} cannot be {name:?}: {problem}")]
    Name {
        /// The object or field that has the name.
        what: String,
        /// The name.
        name: String,
        /// Why it is invalid.
        problem: &'static str,
    },
    /// The built object does not have the type of its kind.
    #[error("the built object is malformed")]
    Malformed(#[from] serde_json::Error),
}
