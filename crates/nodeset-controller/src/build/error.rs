//! Why something cannot be built. Only an edit of what a user wrote helps.

use pod_builder::{LimitError, TypeMismatch};
use slurm_conf::{ExtraItemError, ValueError};

/// Why something cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Something that the user wrote is not what it should be.
    #[error(transparent)]
    TypeMismatch(#[from] TypeMismatch),
    /// The description of the nodes is no list of `Key=Value` items.
    #[error("extraConf cannot be read")]
    ExtraConf(#[from] ExtraItemError),
    /// Slurm cannot know the nodes by this name.
    #[error(transparent)]
    SlurmName(#[from] ValueError),
    /// What the nodes may use is no quantity.
    #[error("{field}.{limit}: it is no quantity")]
    Limit {
        /// The field with the limits.
        field: &'static str,
        /// Which of them.
        limit: LimitError,
    },
    /// Kubernetes refuses the name.
    #[error("{what} cannot be {name:?}: {problem}")]
    Name {
        /// What would have it.
        what: String,
        /// The name.
        name: String,
        /// Why it is refused.
        problem: &'static str,
    },
    /// All of it together is no object of Kubernetes.
    #[error("the object cannot be read back")]
    Malformed(#[from] serde_json::Error),
}
