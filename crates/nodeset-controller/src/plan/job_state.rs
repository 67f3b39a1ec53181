//! Whether a worker has work, and until when. Pods tell that late: what Slurm says comes first.

use crate::slurm::{NodeLookup, View};
use crate::worker::{Work, Worker};
use jiff::Timestamp;
use jiff::civil::date;
use jiff::tz::Offset;
use slurm_rest::Deadline;

/// What Slurm tells of the end of a worker's work.
pub enum Told {
    /// Nothing: what was told before still stands.
    Nothing,
    /// This, or that there is no work.
    This(Option<Timestamp>),
}

/// What is known of the Slurm node of a worker.
pub fn lookup<'v>(slurm: &'v View, worker: &Worker) -> NodeLookup<'v> {
    if worker.was_registered() {
        slurm.lookup_registered(&worker.slurm_name)
    } else {
        slurm.lookup(&worker.slurm_name)
    }
}

/// When the work of a worker is over, as Slurm has it.
pub fn end(slurm: &View, worker: &Worker) -> Told {
    let Some(snapshot) = slurm.snapshot() else { return Told::Nothing };
    match (slurm.lookup(&worker.slurm_name), &snapshot.jobs) {
        (NodeLookup::Present(node), None) if !node.is_busy() => Told::This(None),
        (NodeLookup::Present(_), Some(jobs)) => {
            let deadline = jobs.deadlines.get(&worker.slurm_name).map(|deadline| match deadline {
                Deadline::At(time) => *time,
                Deadline::Never => never(),
            });
            Told::This(deadline)
        }
        (NodeLookup::Present(_) | NodeLookup::Absent | NodeLookup::Unknown, _) => Told::Nothing,
    }
}

/// Stands for a job without end.
fn never() -> Timestamp {
    Offset::UTC.to_timestamp(date(9999, 1, 1).at(0, 0, 0, 0)).unwrap_or(Timestamp::MAX)
}

/// Brings what the pods say of their work up to date.
pub fn hear(workers: &mut [Worker], slurm: &View) {
    for worker in workers {
        let NodeLookup::Present(node) = slurm.lookup(&worker.slurm_name) else { continue };
        let otherwise = if node.is_busy() { Work::Something } else { Work::Nothing };
        worker.work = match end(slurm, worker) {
            Told::This(deadline) => deadline.map_or(otherwise, Work::Until),
            Told::Nothing => worker.work.max(otherwise),
        };
    }
}
