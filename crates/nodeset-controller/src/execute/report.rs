//! What performing the writes of one plan came to: input of the NodeSet's status, its events and the next reconcile.

use super::grant::{ApiRequestError, MaybeFinal, RequestError};
use crate::events::ObjectEvents;
use crate::timing::{LEFTOVER_RETRY, OBSTRUCTED_RETRY};
use expectations::{Basis, Wait, WaitReason};
use operator_runtime::Classify;
use operator_runtime::error::chain;
use operator_runtime::events::NewEvent;
use std::collections::BTreeMap;
use std::time::Duration;

/// What performing the writes of one plan came to.
#[derive(Debug, Default)]
pub struct Report {
    /// What became of the batch.
    pub outcome: BatchOutcome,
    /// Number of successful writes by kind.
    pub done: BTreeMap<WriteKind, usize>,
    /// The objects of writes that were refused and would be again, each with category and message.
    pub refused: BTreeMap<String, (&'static str, String)>,
    /// Writes that failed. Conflicts are not among them: the write that won brings the next plan.
    pub failures: Vec<Failure>,
    /// What has to happen before the remaining writes can be sent, for the status.
    pub waits: Vec<String>,
    /// The names of finished pods that were deleted.
    pub deleted_failed_pods: Vec<String>,
    /// The names of unregistered pods that were deleted.
    pub deleted_unregistered_pods: Vec<String>,
    /// How long the expectations service asked to wait, at least with a part of the effects.
    pub wait: Option<Wait>,
    /// When to plan again at the latest, failures aside.
    pub requeue_after: Option<Duration>,
    pub(super) events: ObjectEvents,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BatchOutcome {
    /// There was nothing to request a batch for.
    #[default]
    Idle,
    /// It was performed, as far as time and grant allowed.
    Performed {
        /// Whether the effect of every write is known. If not, the batch stays open until it expires.
        certain: bool,
    },
    /// The service did not grant it now.
    Wait(WaitReason),
    /// The view may be incomplete: read everything live, plan again, and request a batch with this basis.
    NeedFresh(Basis),
    /// The plan from a live view is empty: the plan from the cache was made from a stale view.
    Outdated,
    /// Another replica owns this NodeSet.
    NotOwner,
    /// The expectations service did not answer.
    Unavailable(String),
}

/// What a successful write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// Set the finalizers of the NodeSet.
    FinalizersSet,
    /// Made the NodeSet the controller of a pod.
    PodAdopted,
    /// Removed the NodeSet as the controller of a pod.
    PodReleased,
    /// Created a pod.
    PodCreated,
    /// Marked a pod; it may have had the mark.
    PodMarked,
    /// Removed the mark of a pod.
    PodUnmarked,
    /// Drained a Slurm node.
    NodeDrained,
    /// Undrained or resumed a Slurm node.
    NodeResumed,
    /// Deleted a pod.
    PodDeleted,
    /// Set the owners of a claim.
    ClaimOwnersSet,
    /// Created, changed or deleted a reservation.
    ReservationWritten,
    /// Deleted the record of a Slurm node.
    NodeRecordDeleted,
    /// Wrote facts of a pod to its Slurm node.
    NodeMirrored,
}

/// A write that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Kind and name of the object.
    pub object: String,
    /// The `reason` label of metrics.
    pub category: &'static str,
    /// The error.
    pub message: String,
}

/// The part of a report that the NodeSet's status shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// Failures: category and message.
    pub errors: Vec<(&'static str, String)>,
    /// Why the remaining writes wait.
    pub waiting: Option<String>,
}

impl Report {
    /// Number of successful writes of a kind.
    #[cfg(test)]
    pub fn count(&self, kind: WriteKind) -> usize {
        self.done.get(&kind).copied().unwrap_or_default()
    }

    /// The Events of the NodeSet to publish.
    pub fn events(&self) -> Vec<NewEvent> {
        self.events.condensed()
    }

    /// Whether something failed, or was planned from a stale view.
    pub fn has_failed(&self) -> bool {
        !self.failures.is_empty()
            || matches!(self.outcome, BatchOutcome::Unavailable(_) | BatchOutcome::Outdated)
    }

    /// The part that the NodeSet's status shows.
    pub fn execution(&self) -> Execution {
        let text = |failure: &Failure| (failure.category, format!("{}: {}", failure.object, failure.message));
        let mut errors: Vec<_> = self.failures.iter().map(text).collect();
        let waiting = match &self.outcome {
            BatchOutcome::Wait(reason) => Some(wait_message(*reason).to_owned()),
            BatchOutcome::NeedFresh(_) => Some("a live list of the workers is needed".to_owned()),
            BatchOutcome::Outdated => Some("the pod cache has not caught up".to_owned()),
            BatchOutcome::Unavailable(why) => {
                errors.push(("ExpectationsUnavailable", why.clone()));
                None
            }
            BatchOutcome::Idle | BatchOutcome::Performed { .. } | BatchOutcome::NotOwner => {
                self.waits.first().cloned()
            }
        };
        Execution { errors, waiting }
    }

    pub(super) fn record(&mut self, kind: WriteKind) {
        *self.done.entry(kind).or_default() += 1;
    }

    /// Writes are left to a plan within this time.
    pub(super) fn requeue_within(&mut self, after: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(after, |earlier| earlier.min(after)));
    }

    /// Writes had no time or no grant.
    pub fn requeue_soon(&mut self) {
        self.requeue_within(LEFTOVER_RETRY);
    }

    /// A live view could not be read.
    pub fn record_failed_view(&mut self, error: &kube::Error) {
        let object = "live list of the workers".to_owned();
        self.failures.push(Failure { object, category: Classify::category(error), message: chain(error) });
    }

    /// Writes wait for something outside of this batch.
    pub(super) fn wait_for(&mut self, what: String) {
        self.waits.push(what);
        self.requeue_within(OBSTRUCTED_RETRY);
    }

    /// Records a failed write. Returns the message if it was sent; one that was not sent is left to the next plan.
    pub(super) fn record_failure<E: MaybeFinal>(
        &mut self,
        object: String,
        error: &RequestError<E>,
    ) -> Option<String> {
        if matches!(error, RequestError::OutOfTime) {
            self.requeue_soon();
            return None;
        }
        let message = error.message();
        if error.is_refusal() {
            self.refuse(object.clone(), error.category(), format!("{object}: {message}"));
        }
        self.failures.push(Failure { object, category: error.category(), message: message.clone() });
        Some(message)
    }

    /// Records that a write was refused and would be again.
    pub(super) fn refuse(&mut self, name: String, category: &'static str, message: String) {
        self.refused.insert(name, (category, message));
    }

    /// Records a failed conditional write. A conflict is no failure: the write that won brings the next plan.
    pub(super) fn record_conditional_failure(&mut self, object: String, error: &ApiRequestError) {
        if !error.is_conflict() && !error.is_not_found() {
            self.record_failure(object, error);
        }
    }
}

/// Why a batch waits, for the status.
pub const fn wait_message(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::OpenBatch => "an earlier batch of this NodeSet has not ended",
        WaitReason::HalfOpen => "writes of an earlier batch or process may still take effect",
        WaitReason::Budget => "the limit of concurrent pod creates and deletes is reached",
        WaitReason::Stopping => "the expectations service is stopping",
    }
}
