//! Obstacles: why a plan leaves a child, or all children of an object, as they are. Running pods are not touched.

use crate::error::{Class, Classify};
use crate::missing_reference::MissingReference;
use crate::references::ReferenceError;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

/// Why a child is not written. `S` has the obstacles that only one controller knows.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Obstacle<S: Classify = Infallible> {
    /// The spec refers to an object that does not exist.
    #[error(transparent)]
    Missing(#[from] MissingReference),
    /// A reference of the spec cannot be resolved. Shared, because several children may depend on one reference.
    #[error(transparent)]
    Reference(#[from] Arc<ReferenceError>),
    /// A child would have a name that the API server rejects.
    #[error("metadata.name: {name:?} cannot be the name of a {kind} ({problem})")]
    Name {
        /// Kind of the child.
        kind: &'static str,
        /// Name of the child.
        name: String,
        /// The rule that the name breaks.
        problem: &'static str,
    },
    /// The child cannot be built from the spec; only an edit helps.
    #[error(transparent)]
    Invalid(Arc<dyn Error + Send + Sync>),
    /// An obstacle that only one controller knows.
    #[error(transparent)]
    Specific(S),
}

impl<S: Classify> Obstacle<S> {
    /// The spec cannot be acted on, for this reason.
    pub fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Invalid(error.into().into())
    }
}

impl<S: Classify + 'static> Classify for Obstacle<S> {
    fn class(&self) -> Class {
        match self {
            Self::Missing(missing) => missing.class(),
            Self::Reference(error) => error.class(),
            Self::Name { .. } | Self::Invalid(_) => Class::Invalid,
            Self::Specific(obstacle) => obstacle.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.category(),
            Self::Reference(error) => error.category(),
            Self::Name { .. } => "InvalidName",
            Self::Invalid(_) => "InvalidSpec",
            Self::Specific(obstacle) => obstacle.category(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{WATCH_FALLBACK, chain};
    use rstest::rstest;

    #[derive(Debug, thiserror::Error)]
    #[error("login.image cannot be read")]
    struct Unreadable(#[source] std::fmt::Error);

    #[rstest]
    #[case::invalid_spec(Obstacle::invalid(Unreadable(std::fmt::Error)), Class::Invalid, "InvalidSpec")]
    #[case::invalid_name(
        Obstacle::Name { kind: "StatefulSet", name: "a.b".to_owned(), problem: "has dots" },
        Class::Invalid,
        "InvalidName"
    )]
    #[case::missing_reference(
        MissingReference::Controller("slurm".to_owned()).into(),
        Class::Waiting(WATCH_FALLBACK),
        "ControllerMissing"
    )]
    fn an_obstacle_has_the_class_and_the_category_of_its_cause(
        #[case] obstacle: Obstacle,
        #[case] class: Class,
        #[case] category: &str,
    ) {
        assert_eq!((obstacle.class(), obstacle.category()), (class, category));
    }

    #[test]
    fn the_cause_of_an_invalid_spec_is_reported_once_with_its_sources() {
        let obstacle: Obstacle = Obstacle::invalid(Unreadable(std::fmt::Error));
        let source = std::fmt::Error.to_string();
        assert_eq!(chain(&obstacle), format!("login.image cannot be read: {source}"));
    }
}
