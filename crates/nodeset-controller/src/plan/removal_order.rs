//! Which of two workers is removed first.

use crate::worker::{Cordon, Phase, Worker};
use jiff::Timestamp;
use std::cmp::{Ordering, Reverse};

/// Orders workers by removal, first to be removed first. A total order: only the same pod compares equal.
pub fn removal_order(one: &Worker, other: &Worker) -> Ordering {
    rank(one).cmp(&rank(other))
}

/// Lower is removed first.
fn rank(worker: &Worker) -> impl Ord + use<'_> {
    let metadata = &worker.pod.metadata;
    (
        // A terminating pod counts as removed: removing another in its place would be one too many.
        Reverse(worker.terminating),
        worker.node.is_some(),
        match worker.phase {
            Phase::Pending | Phase::Succeeded | Phase::Failed => 0,
            Phase::Unknown => 1,
            Phase::Running => 2,
        },
        worker.ready.is_some(),
        worker.cost,
        // The removal of an idle worker need not wait for jobs.
        worker.job_state,
        worker.cordon == Cordon::None,
        // Workers without ordinal come last.
        Reverse(worker.ordinal),
        // Workers that are ready for longer stay; a missing time counts as recent.
        Reverse(worker.ready.map(|ready| ready.since.unwrap_or(Timestamp::MAX))),
        Reverse(worker.created.unwrap_or(Timestamp::MAX)),
        metadata.name.as_deref(),
        metadata.uid.as_deref(),
    )
}

#[cfg(test)]
mod tests;
