//! Which of two workers goes first when there are too many.

use crate::worker::{Cordon, Phase, Worker};
use jiff::Timestamp;
use std::cmp::{Ordering, Reverse};

/// Sorts workers so that those to remove first come first. Total: only one and the same pod is equal to itself.
pub fn removal_order(one: &Worker, other: &Worker) -> Ordering {
    rank(one).cmp(&rank(other))
}

/// Lower goes first.
fn rank(worker: &Worker) -> impl Ord + use<'_> {
    let metadata = &worker.pod.metadata;
    (
        // On its way out already: whoever is removed in its place is one too many.
        Reverse(worker.terminating),
        worker.node.is_some(),
        match worker.phase {
            Phase::Pending | Phase::Succeeded | Phase::Failed => 0,
            Phase::Unknown => 1,
            Phase::Running => 2,
        },
        worker.ready.is_some(),
        worker.cost,
        // Without work there is nothing to wait for.
        worker.work,
        worker.cordon == Cordon::None,
        // Those without a number come last.
        Reverse(worker.ordinal),
        // Who serves for longer stays; a time that nobody wrote down is short ago.
        Reverse(worker.ready.map(|ready| ready.since.unwrap_or(Timestamp::MAX))),
        Reverse(worker.created.unwrap_or(Timestamp::MAX)),
        metadata.name.as_deref(),
        metadata.uid.as_deref(),
    )
}

#[cfg(test)]
mod tests;
