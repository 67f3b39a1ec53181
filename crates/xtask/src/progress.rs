//! Prints the steps of a command with their durations.

#![expect(clippy::disallowed_types, reason = "elapsed time is printed, nothing depends on it")]

use anyhow::{Context, Result};
use std::fmt::Display;
use std::time::Instant;

/// Runs one named step; prints its name when it starts and its duration when it ends.
pub fn step<T>(name: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let started = Instant::now();
    eprintln!("==> {name}");
    let result = work().with_context(|| name.to_string());
    let elapsed = started.elapsed().as_secs_f32();
    let outcome = if result.is_ok() { "done in" } else { "failed after" };
    eprintln!("    {name}: {outcome} {elapsed:.1} s");
    result
}
