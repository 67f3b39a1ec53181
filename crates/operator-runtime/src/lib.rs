//! What every binary of the operator shares: flags, client, apply, events, metrics, leadership, shutdown.
//!
//! A binary's `main` is a call of [`run`]; its code starts with a [`Runtime`], asks [`Runtime::for_each_scope`] for the
//! namespaces to watch, and hands its controller to [`Scope::run_controller`].

mod admin;
pub mod apply;
pub mod args;
pub mod backoff;
mod changed_objects;
mod child_writer;
pub mod client;
pub mod error;
pub mod events;
pub mod lease;
pub mod metrics;
mod missing_reference;
mod per_object;
mod raw_object;
mod readable;
mod ready;
pub mod reconcile;
pub mod references;
mod report;
pub mod retry;
mod run;
mod runtime;
mod scope;
mod tasks;

pub use args::Args;
pub use changed_objects::changed_objects;
pub use child_writer::{ChildWriter, StepErrors};
pub use error::{Class, Classify};
pub use missing_reference::{MissingReference, config_map_value, secret_value};
pub use per_object::{ObjectKey, PerObject};
pub use raw_object::RawObject;
pub use ready::Gate;
pub use run::run;
pub use runtime::Runtime;
pub use scope::{Scope, Watched, cached_or_live, changed_by, find, referrers, spec_changes};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays whole between any two statements under it, so that a panic elsewhere does not spread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
