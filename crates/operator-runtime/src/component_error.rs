//! The error of a reconcile that observes, plans, writes children and writes a status.

use crate::apply;
use crate::child_writer::StepErrors;
use crate::error::{Class, Classify};
use crate::obstacle::Obstacle;
use std::convert::Infallible;

/// Why a reconcile failed. `S` has the obstacles that only one controller knows.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError<S: Classify = Infallible> {
    /// Reading the children failed.
    #[error("reading from the API server failed")]
    Read(#[from] kube::Error),
    /// The plan has no step, because of this obstacle.
    #[error(transparent)]
    Obstacle(#[from] Obstacle<S>),
    /// Steps of the plan failed.
    #[error(transparent)]
    Steps(#[from] StepErrors),
    /// A write that is not one of several steps failed: that of the status, or of the only child.
    #[error(transparent)]
    Write(#[from] apply::Error),
}

impl<S: Classify + 'static> ComponentError<S> {
    fn cause(&self) -> &dyn Classify {
        match self {
            Self::Read(error) => error,
            Self::Obstacle(obstacle) => obstacle,
            Self::Steps(errors) => errors,
            Self::Write(error) => error,
        }
    }
}

impl<S: Classify + 'static> Classify for ComponentError<S> {
    fn class(&self) -> Class {
        self.cause().class()
    }

    fn category(&self) -> &'static str {
        self.cause().category()
    }
}
