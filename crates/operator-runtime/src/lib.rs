//! What every binary of the operator shares: flags, client, apply, events, metrics, leadership, shutdown.
//!
//! A binary's `main` is a call of [`run`]; its code starts with a [`Runtime`], asks [`Runtime::for_each_scope`] for the
//! namespaces to watch, and hands its controller to [`Scope::run_controller`].

mod admin;
pub mod apply;
pub mod args;
pub mod backoff;
pub mod client;
pub mod error;
pub mod events;
mod exact;
pub mod lease;
pub mod metrics;
mod missing;
mod pass;
mod per_object;
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
mod touched;

pub use args::Args;
pub use error::{Class, Classify};
pub use exact::Exact;
pub use missing::{Missing, config_map_value, secret_value};
pub use pass::{Pass, PassError};
pub use per_object::{ObjectKey, PerObject};
pub use ready::Gate;
pub use run::run;
pub use runtime::Runtime;
pub use scope::{Scope, Watched, changed_facts, find, find_or_read, referrers, spec_changes};
pub use touched::touched;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays whole between any two statements under it, so that a panic elsewhere does not spread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
