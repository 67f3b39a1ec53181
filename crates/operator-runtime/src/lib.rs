//! What every binary of the operator shares: flags, client, apply, events, metrics, leadership, shutdown.

pub mod admin;
pub mod apply;
pub mod args;
pub mod backoff;
pub mod client;
pub mod error;
pub mod lease;
pub mod metrics;
pub mod per_object;
pub mod ready;
pub mod retry;
pub mod tasks;

pub use args::Args;
pub use error::{Class, Classify};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data stays whole between any two statements under it, so that a panic elsewhere does not spread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
