//! Whether a worker has jobs, and until when. Pod annotations lag behind, so live Slurm data takes precedence.

use super::registration::lookup;
use crate::slurm::{NodeLookup, View};
use crate::worker::{JobState, Worker};
use jiff::Timestamp;
use jiff::civil::date;
use jiff::tz::Offset;
use slurm_rest::Deadline;

/// When the jobs of a worker end, according to Slurm.
pub enum JobEnd {
    /// Slurm does not say: the last known end still applies.
    Unknown,
    /// This time at the latest; `None` if there is no job.
    Known(Option<Timestamp>),
}

/// When the jobs of a worker end, according to Slurm.
pub fn job_end(slurm: &View, worker: &Worker) -> JobEnd {
    let Some(snapshot) = slurm.snapshot() else { return JobEnd::Unknown };
    match (lookup(slurm, worker), &snapshot.jobs) {
        (NodeLookup::Present(node), None) if !node.is_busy() => JobEnd::Known(None),
        (NodeLookup::Present(_), Some(jobs)) => {
            let deadline = jobs.deadlines.get(&worker.slurm_name).map(|deadline| match deadline {
                Deadline::At(time) => *time,
                Deadline::Never => far_future(),
            });
            JobEnd::Known(deadline)
        }
        (NodeLookup::Present(_) | NodeLookup::Absent | NodeLookup::Unknown, _) => JobEnd::Unknown,
    }
}

/// The end of a job without time limit.
fn far_future() -> Timestamp {
    Offset::UTC.to_timestamp(date(9999, 1, 1).at(0, 0, 0, 0)).unwrap_or(Timestamp::MAX)
}

/// Overrides the job state from pod annotations with live Slurm data.
pub fn update_job_state_from_slurm(workers: &mut [Worker], slurm: &View) {
    for worker in workers {
        let NodeLookup::Present(node) = lookup(slurm, worker) else { continue };
        let without_end = if node.is_busy() { JobState::UnknownEnd } else { JobState::None };
        worker.job_state = match job_end(slurm, worker) {
            JobEnd::Known(deadline) => deadline.map_or(without_end, JobState::Until),
            JobEnd::Unknown => worker.job_state.max(without_end),
        };
    }
}
