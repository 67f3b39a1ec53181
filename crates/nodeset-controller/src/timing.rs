//! Intervals, timeouts and thresholds of this controller. They depend on one another: see the tests.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Shortest time between two reconciles of one NodeSet: pods that change one after the other then make work for one
/// reconcile, not for one each.
pub const RECONCILE_PAUSE: Duration = Duration::from_millis(200);
/// When to check that a NodeSet got its finalizers and annotations: a write that lost against another write of ours enqueues
/// nothing.
pub const METADATA_CHECK: Duration = Duration::from_secs(1);
/// Shortest time between two status writes that change numbers only: every pod that starts changes some.
pub const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// How long a pod may be unschedulable before the NodeSet is degraded: longer than a pod takes to terminate and free its node.
pub const UNSCHEDULABLE_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How long an updated worker may be ready without getting jobs from Slurm before the update counts as blocked: longer than
/// slurmd takes to register and to answer slurmctld.
pub const USELESS_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How long a healthy worker may be unregistered in Slurm before it is replaced: slurmd registers within seconds.
pub const UNREGISTERED_LIMIT: SignedDuration = SignedDuration::from_mins(2);

/// Pause after a batch before the next one of the same NodeSet: pods that become ready one after the other then make work
/// for one batch, not for one each.
pub const BATCH_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a batch of which a part failed.
pub const PARTIAL_FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a batch of which everything failed. The cause may be gone without an event that says so, and other
/// writes may be due by then.
pub const LONGEST_FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Pause after the service answered that another replica owns the NodeSet, although this one still believes to.
pub const NOT_OWNER_PAUSE: Duration = Duration::from_secs(1);
/// When to look again at a status that was written by another replica while this one has not joined the service.
pub const FOREIGN_STATUS_RETRY: Duration = Duration::from_secs(5);
/// When to plan again for writes that had no time or no grant.
pub const LEFTOVER_RETRY: Duration = Duration::from_secs(1);
/// When to plan again for writes that wait for the deletion of another object, which need not be one that is watched.
pub const OBSTRUCTED_RETRY: Duration = Duration::from_secs(5);

/// Pause before the first retry of a request within a batch.
pub const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between two retries of a request within a batch.
pub const LONGEST_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// How long a node list counts as evidence for deletes after its answer.
pub const EVIDENCE_AGE: Duration = Duration::from_secs(5);
/// Time for the mirror writes to Slurm nodes of one plan; the rest is left to the next plan.
pub const NODE_MIRROR_TIME: Duration = Duration::from_secs(10);
/// Time for the mirror writes to pods of one plan; the rest is left to the next plan.
pub const POD_MIRROR_TIME: Duration = Duration::from_secs(10);
/// How long to wait for the watch to deliver the results of a batch before everything is read live.
pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to check whether the watch of pods can leave out those of clusters that other replicas own by now.
pub const POD_SELECTION_CHECK: Duration = Duration::from_secs(15);
/// When to look again whether the pods of a gained NodeSet are listed: one without pods is enqueued by none.
pub const POD_LIST_RETRY: Duration = Duration::from_secs(1);
/// How long changes that the watch delivered are kept: a watch event may overtake the answer to its write.
pub const DELIVERED_CHANGES_KEPT: Duration = Duration::from_secs(30);

/// Shortest time between two node lists, and the longest sleep of the polling task.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often all nodes are listed, changed or not: slurmctld updates the resources in use only for a full list, and a
/// conditional list misses changes made while slurmctld's clock was set back.
pub const FULL_LIST_INTERVAL: Duration = Duration::from_secs(30);
/// How often jobs and reservations are listed.
pub const JOB_LIST_INTERVAL: Duration = Duration::from_secs(10);
/// Longest pause after lists of jobs or reservations that failed.
pub const MAX_JOB_LIST_BACKOFF: Duration = Duration::from_mins(5);
/// Longest pause after a slow answer.
pub const MAX_REST: Duration = Duration::from_secs(10);
/// Longest backoff after failed node lists.
pub const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Timeout of a node list, which takes up to three requests. Short, so that several attempts fit into [`STALE_AFTER`].
pub const NODE_LIST_TIMEOUT: Duration = Duration::from_secs(9);
/// Timeout of every other request to slurmrestd. Lists of many jobs are long.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long slurmrestd waits for slurmctld. It goes on waiting after its client has disconnected.
pub const SLURMRESTD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after it was sent an unanswered write may still take effect: slurmctld was observed to execute queued
/// requests after a hang, and slurmrestd keeps a request for a few times [`SLURMRESTD_TIMEOUT`].
pub const LATE_WRITE_WINDOW: Duration = Duration::from_secs(40);

/// Timeout of reading the signing key from the API server. The polling task waits for it.
pub const KEY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a signing key that is missing, or that Slurm refuses, is read again.
pub const KEY_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long a Controller may be without a RestApi before its workers are managed without Slurm: long enough to recreate
/// a RestApi.
pub const RESTAPI_GRACE: Duration = Duration::from_mins(1);

/// A node that two lists this far apart both lack does not exist.
pub const ABSENCE_PROOF: Duration = Duration::from_secs(20);
/// The same after a list that lacks most nodes, and after the first list: a restarted slurmctld that lost its state shows
/// no dynamic node until the slurmds have registered again.
pub const MASS_ABSENCE_PROOF: Duration = Duration::from_mins(1);

/// Age at which a list is no longer used for decisions.
pub const STALE_AFTER: Duration = Duration::from_secs(30);
/// How long Slurm may be unreachable before all workers that it knew are protected from eviction: a minute after the last
/// list became stale. Neither a short outage nor a restart of this process changes labels.
pub const PROTECT_WORKERS_AFTER: Duration = STALE_AFTER.saturating_add(Duration::from_mins(1));
/// How long Slurm may be unreachable before a NodeSet is degraded: longer than slurmctld takes to start or to fail over.
pub const DEGRADED_AFTER: Duration = Duration::from_mins(5);

/// How long a cluster is polled after its last reader.
pub const IDLE_AFTER: Duration = Duration::from_mins(5);
/// When the NodeSets of a cluster without a reader are reconciled, so that those that still exist read it.
pub const REQUEST_READERS_AFTER: Duration = Duration::from_mins(4);

/// The part of a pause that is left; `None` if it is over. A clock that was set back ends the pause.
pub fn remaining(pause: Duration, since: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(since?)).ok()?;
    pause.checked_sub(age).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expectations::Timing;
    use rstest::rstest;

    #[rstest]
    #[case::reconciles_during_the_pause_of_a_batch_share_one(RECONCILE_PAUSE, BATCH_PAUSE)]
    #[case::pauses_grow_with_the_failure(BATCH_PAUSE, PARTIAL_FAILURE_PAUSE)]
    #[case::total_failure_pauses_longest(PARTIAL_FAILURE_PAUSE, LONGEST_FAILURE_PAUSE)]
    #[case::retries_fit_into_a_batch(LONGEST_RETRY_PAUSE, Timing::default().lease)]
    #[case::evidence_is_fresher_than_a_decision(EVIDENCE_AGE, STALE_AFTER)]
    #[case::changes_are_kept_for_a_whole_batch(Timing::default().lease, DELIVERED_CHANGES_KEPT)]
    #[case::polling_keeps_lists_fresh(POLL_INTERVAL, STALE_AFTER)]
    #[case::slow_answers_keep_lists_fresh(NODE_LIST_TIMEOUT * 2 + MAX_REST, STALE_AFTER)]
    #[case::first_four_retries_come_before_the_list_is_stale(POLL_INTERVAL * (1 + 2 + 4 + 8), STALE_AFTER)]
    #[case::longest_backoff_and_one_retry_keep_lists_fresh(MAX_BACKOFF + NODE_LIST_TIMEOUT, STALE_AFTER)]
    #[case::one_failed_job_list_keeps_jobs_known(JOB_LIST_INTERVAL * 2, STALE_AFTER)]
    #[case::reading_the_key_keeps_lists_fresh(KEY_TIMEOUT + NODE_LIST_TIMEOUT + MAX_REST, STALE_AFTER)]
    #[case::key_reads_do_not_overlap(KEY_TIMEOUT, KEY_RETRY_INTERVAL)]
    #[case::unanswered_write_is_uncertain_after_its_timeout(REQUEST_TIMEOUT, LATE_WRITE_WINDOW)]
    #[case::write_window_is_a_few_slurmrestd_timeouts(SLURMRESTD_TIMEOUT * 3, LATE_WRITE_WINDOW)]
    #[case::next_full_list_proves_absence(ABSENCE_PROOF, FULL_LIST_INTERVAL)]
    #[case::mass_absence_needs_a_second_full_list(FULL_LIST_INTERVAL, MASS_ABSENCE_PROOF)]
    #[case::workers_are_protected_after_lists_are_stale(STALE_AFTER, PROTECT_WORKERS_AFTER)]
    #[case::workers_are_protected_before_degraded(PROTECT_WORKERS_AFTER, DEGRADED_AFTER)]
    #[case::missing_restapi_is_decided_before_degraded(RESTAPI_GRACE, DEGRADED_AFTER)]
    #[case::readers_are_requested_before_polling_ends(
        REQUEST_READERS_AFTER + POLL_INTERVAL + REQUEST_TIMEOUT, IDLE_AFTER
    )]
    fn first_is_shorter_than_second(#[case] first: Duration, #[case] second: Duration) {
        assert!(first < second, "{first:?} must be shorter than {second:?}");
    }

    #[test]
    fn workers_are_protected_after_90_s() {
        assert_eq!(PROTECT_WORKERS_AFTER, Duration::from_secs(90), "docs/nodesets.md states this time");
    }
}
