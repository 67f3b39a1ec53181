//! The Ready condition: whether as many workers as desired are available.

use super::progress::Progress;
use crate::slurm::View;
use crate::worker::Worker;

impl Progress<'_> {
    /// Number of workers that are available, registered in Slurm, and not about to be replaced.
    fn serving(&self) -> usize {
        let serves = |worker: &&Worker| {
            worker.is_alive()
                && !self.is_updated_now(worker)
                && self.is_available(worker)
                && self.is_registered(worker)
        };
        self.plan.workers.iter().filter(serves).count()
    }

    /// Whether as many workers as desired serve.
    pub fn is_complete(&self) -> bool {
        self.plan.deletion.is_none()
            && i32::try_from(self.serving()).is_ok_and(|serving| serving >= self.status.desired)
    }

    /// The message of Ready=True.
    pub fn ready_message(&self) -> String {
        let registered = match self.observed.slurm {
            View::NoRestApi => "registration in Slurm is not checked without a RestApi",
            View::Unknown { .. } | View::Known(_) => "registered in Slurm",
        };
        format!("{} of {} workers available, {registered}", self.serving(), self.status.desired)
    }
}
