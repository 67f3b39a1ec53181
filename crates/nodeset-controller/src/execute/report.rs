//! What became of the work of one pass, for the NodeSet's status, for people and for the next pass.

use super::grant::{ApiFault, Fault, Final};
use super::notices::Notices;
use expectations::{Basis, WaitReason};
use operator_runtime::Classify;
use operator_runtime::error::chain;
use operator_runtime::events::NewEvent;
use std::collections::BTreeMap;
use std::time::Duration;

/// When to plan again for what there was no time or grant for.
const SOON: Duration = Duration::from_secs(1);
/// When to plan again for what waits for the end of another object, which nobody may tell us of.
const PATIENTLY: Duration = Duration::from_secs(5);

/// What became of the work of one pass.
#[derive(Debug, Default)]
pub struct Report {
    /// What became of the batch.
    pub verdict: Verdict,
    /// How often what was done.
    pub done: BTreeMap<Deed, usize>,
    /// What failed, object by object. A write that lost a race against another one is not among them: that one brings the
    /// next plan.
    pub failures: Vec<Failure>,
    /// What has to happen elsewhere before the rest can be done, for people.
    pub waits: Vec<String>,
    /// The pods that had ended by themselves and were deleted, by name.
    pub cleared: Vec<String>,
    /// When to plan again at the latest, failures aside.
    pub again: Option<Duration>,
    pub(super) told: Notices,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// There was nothing to ask for.
    #[default]
    Idle,
    /// It was performed, as far as time and grants allowed.
    Performed {
        /// Whether every write was answered. If not, the batch is left to run out.
        certain: bool,
    },
    /// Not now.
    Wait(WaitReason),
    /// The view is not known to be complete: read everything live, plan again, and ask with this basis.
    NeedFresh(Basis),
    /// A live view showed that nothing is to be done: what was decided on was old.
    Overtaken,
    /// Another replica works for this NodeSet.
    NotOwner,
    /// Nobody could be asked.
    Unavailable(String),
}

/// Something done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// The NodeSet got its finalizers.
    Finalized,
    /// A pod was adopted.
    Adopted,
    /// A pod was given up.
    Disowned,
    /// A pod was made.
    Created,
    /// A pod was marked, or had the mark.
    Marked,
    /// The mark was taken off a pod.
    Unmarked,
    /// A Slurm node was drained.
    Drained,
    /// The drain of a Slurm node was ended, or it was put back to work.
    Restored,
    /// A pod was deleted.
    Deleted,
    /// A claim got its owners.
    Owned,
    /// A reservation was made, changed or deleted.
    Reserved,
    /// The record of a Slurm node was deleted.
    Forgotten,
    /// A Slurm node was told of its pod.
    Mirrored,
}

/// A write that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind and name of what was to be written.
    pub object: String,
    /// A fixed name, for metrics.
    pub category: &'static str,
    /// The details, for people.
    pub message: String,
}

impl Report {
    /// How often this was done.
    #[cfg(test)]
    pub fn count(&self, deed: Deed) -> usize {
        self.done.get(&deed).copied().unwrap_or_default()
    }

    /// What to tell as Events of the NodeSet.
    pub fn notices(&self) -> Vec<NewEvent> {
        self.told.condensed()
    }

    pub(super) fn did(&mut self, deed: Deed) {
        *self.done.entry(deed).or_default() += 1;
    }

    /// There is something left to do, after this time.
    pub(super) fn leave_for(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }

    /// There was no time or no grant for something.
    pub fn leave(&mut self) {
        self.leave_for(SOON);
    }

    /// What is there could not be read.
    pub fn miss_view(&mut self, error: &kube::Error) {
        let object = "a live view of the workers".to_owned();
        self.failures.push(Failure { object, category: Classify::category(error), message: chain(error) });
    }

    /// Something has to happen elsewhere first.
    pub(super) fn wait(&mut self, what: String) {
        self.waits.push(what);
        self.leave_for(PATIENTLY);
    }

    /// A write did not succeed. Gives its error's text, if it was sent: what was not is left to the next plan and needs no
    /// words.
    pub(super) fn fail<E: Final>(&mut self, object: String, fault: &Fault<E>) -> Option<String> {
        if matches!(fault, Fault::Late) {
            self.leave();
            return None;
        }
        let message = fault.message();
        self.failures.push(Failure { object, category: fault.category(), message: message.clone() });
        Some(message)
    }

    /// A conditional write did not succeed. One that lost a race is left to the next plan, which the winner brings.
    pub(super) fn lose(&mut self, object: String, fault: &ApiFault) {
        if !fault.is_conflict() && !fault.is_gone() {
            self.fail(object, fault);
        }
    }
}
