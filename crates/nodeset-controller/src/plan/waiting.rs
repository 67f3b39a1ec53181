//! Workers that should be removed and cannot be yet, and what they wait for.

use jiff::Timestamp;

/// A worker that should be removed and cannot be yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Pod name.
    pub pod: String,
    /// What it waits for.
    pub for_: WaitFor,
}

/// What the removal of a worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitFor {
    /// The Slurm node to be drained, and its jobs to end.
    Drain,
    /// Slurm to answer.
    Slurm,
    /// An administrator: the worker had a job when its Slurm node record was lost.
    LostJob,
    /// An administrator: its slurmd may be registered under another name, with jobs.
    OtherName,
    /// Other workers to be available.
    Others,
    /// The end of the backoff after a failure.
    Backoff(Timestamp),
}
