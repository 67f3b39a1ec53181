//! Decides what to read from a cluster, and when. Pure.
//!
//! Reads are serial: while slurmctld is down, slurmrestd blocks one of its few threads for each. The pause after an answer
//! grows with the time that it took, which is a measure of its cost.

use crate::timing::{
    FULL_LIST_INTERVAL, IDLE_AFTER, JOB_LIST_INTERVAL, MAX_BACKOFF, MAX_JOB_LIST_BACKOFF, MAX_REST,
    POLL_INTERVAL, REQUEST_READERS_AFTER, SLURMRESTD_TIMEOUT,
};
use slurm_rest::Error;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// What a reader needs besides the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queries {
    /// The number of jobs per partition, and which partitions accept new ones. The deadlines of jobs are read anyway
    /// while a node is busy.
    pub jobs: bool,
    /// The reservations.
    pub reservations: bool,
}

/// The next step of the polling task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// List the nodes.
    ListNodes {
        /// All of them, whether or not any changed.
        full: bool,
    },
    /// List the jobs.
    ListJobs,
    /// List the reservations.
    ListReservations,
    /// Nothing is due before this time.
    Wait(Instant),
}

/// A read that is repeated while a reader needs it.
#[derive(Debug, Default)]
struct PeriodicRead {
    requested_at: Option<Instant>,
    started_at: Option<Instant>,
    rests_until: Option<Instant>,
    /// How many lists failed in a row.
    failures: u32,
}

impl PeriodicRead {
    /// Records a request; returns whether there was none before.
    fn request(&mut self, now: Instant) -> bool {
        let is_new = !self.is_requested(now);
        self.requested_at = Some(now);
        is_new
    }

    fn is_requested(&self, now: Instant) -> bool {
        self.requested_at.is_some_and(|requested_at| now < requested_at + IDLE_AFTER)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_rested(now) && self.started_at.is_none_or(|started_at| started_at + JOB_LIST_INTERVAL <= now)
    }

    fn is_rested(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    /// A list that fails, and most of all one that times out, is as much work for slurmctld as one that succeeds.
    fn finished(&mut self, is_listed: bool, started_at: Instant, now: Instant) {
        let pause = if is_listed {
            self.failures = 0;
            rest(now - started_at)
        } else {
            self.failures = self.failures.saturating_add(1);
            MAX_JOB_LIST_BACKOFF.min(JOB_LIST_INTERVAL * 2_u32.pow(self.failures.min(10) - 1))
        };
        (self.started_at, self.rests_until) = (Some(started_at), Some(now + pause));
    }
}

/// When each read is due.
#[derive(Debug)]
pub struct Schedule {
    last_reader_at: Instant,
    readers_requested: bool,
    nodes_due: Instant,
    full_list_due: Instant,
    failures: u32,
    jobs: PeriodicRead,
    /// The busy nodes at the last job list.
    busy_at_job_list: BTreeSet<String>,
    reservations: PeriodicRead,
}

impl Schedule {
    /// A full node list is due at once.
    pub fn new(now: Instant) -> Self {
        Self {
            last_reader_at: now,
            readers_requested: false,
            nodes_due: now,
            full_list_due: now,
            failures: 0,
            jobs: PeriodicRead::default(),
            busy_at_job_list: BTreeSet::new(),
            reservations: PeriodicRead::default(),
        }
    }

    /// Records a reader; returns whether it needs a query that was not requested before.
    pub fn request(&mut self, queries: Queries, now: Instant) -> bool {
        (self.last_reader_at, self.readers_requested) = (now, false);
        let jobs = queries.jobs && self.jobs.request(now);
        let reservations = queries.reservations && self.reservations.request(now);
        jobs || reservations
    }

    /// Whether the cluster had no reader for so long that polling ends.
    pub fn is_idle(&self, now: Instant) -> bool {
        self.last_reader_at + IDLE_AFTER <= now
    }

    /// Whether to notify the readers, once, although nothing changed: while nothing changes they do not read.
    pub fn requests_readers(&mut self, now: Instant) -> bool {
        let requests = !self.readers_requested && self.last_reader_at + REQUEST_READERS_AFTER <= now;
        self.readers_requested |= requests;
        requests
    }

    /// Whether a reader needs jobs even if no node is busy.
    pub fn jobs_requested(&self, now: Instant) -> bool {
        self.jobs.is_requested(now)
    }

    /// Whether a reader needs reservations.
    pub fn reservations_requested(&self, now: Instant) -> bool {
        self.reservations.is_requested(now)
    }

    /// Whether the last node list failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether requests have to wait because the last node list failed.
    pub fn is_backing_off(&self, now: Instant) -> bool {
        self.is_failing() && now < self.nodes_due
    }

    /// The next step. `live_list`: a caller waits for a full node list. `busy`: the nodes with jobs.
    pub fn next_step(&self, live_list: bool, busy: &BTreeSet<String>, now: Instant) -> Step {
        if live_list || self.nodes_due <= now {
            return Step::ListNodes { full: live_list || self.full_list_due <= now };
        }
        if !self.is_failing() {
            let is_changed = *busy != self.busy_at_job_list && self.jobs.is_rested(now);
            let is_needed = !busy.is_empty() || self.jobs_requested(now);
            if is_needed && (is_changed || self.jobs.is_due(now)) {
                return Step::ListJobs;
            }
            if self.reservations_requested(now) && self.reservations.is_due(now) {
                return Step::ListReservations;
            }
        }
        Step::Wait(self.nodes_due.min(now + POLL_INTERVAL))
    }

    /// Makes a full node list due at once, after a change of the slurmrestd.
    pub fn restart(&mut self, now: Instant) {
        (self.nodes_due, self.full_list_due, self.failures) = (now, now, 0);
    }

    /// A node list was answered.
    pub fn nodes_listed(&mut self, full: bool, started_at: Instant, now: Instant) {
        (self.failures, self.nodes_due) = (0, now + rest(now - started_at));
        if full {
            self.full_list_due = started_at + FULL_LIST_INTERVAL;
        }
    }

    /// A node list failed.
    pub fn node_list_failed(&mut self, error: &Error, started_at: Instant, now: Instant) {
        let backoff = POLL_INTERVAL * 2_u32.pow(self.failures.min(4));
        self.failures = self.failures.saturating_add(1);
        self.nodes_due = now + backoff.min(MAX_BACKOFF);
        if matches!(error, Error::Timeout(_)) {
            // Until then slurmrestd still works on the request that timed out here.
            self.nodes_due = self.nodes_due.max(started_at + SLURMRESTD_TIMEOUT);
        }
    }

    /// A list of jobs ended that was requested while these nodes were busy.
    pub fn jobs_read(&mut self, busy: &BTreeSet<String>, is_listed: bool, started_at: Instant, now: Instant) {
        self.jobs.finished(is_listed, started_at, now);
        self.busy_at_job_list.clone_from(busy);
    }

    /// A list of reservations ended.
    pub fn reservations_read(&mut self, is_listed: bool, started_at: Instant, now: Instant) {
        self.reservations.finished(is_listed, started_at, now);
    }

    /// Makes a reservation list due at once, after a write.
    pub fn reservations_written(&mut self) {
        let requested_at = self.reservations.requested_at;
        self.reservations = PeriodicRead { requested_at, ..PeriodicRead::default() };
    }
}

/// The pause after an answer: reads take at most a fifth of the time.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(4).clamp(POLL_INTERVAL, MAX_REST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn busy(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[rstest]
    #[case::quick(0, 1000)]
    #[case::a_third_of_a_second(300, 1200)]
    #[case::slow(2000, 8000)]
    #[case::very_slow(5000, 10_000)]
    fn pause_is_four_times_the_answer_time_from_1_to_10_s(#[case] took: u64, #[case] pause: u64) {
        assert_eq!(rest(Duration::from_millis(took)), Duration::from_millis(pause));
    }

    #[test]
    fn backoff_doubles_up_to_15_s_and_success_resets_it() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let mut backoffs = vec![];
        for _ in 0..6 {
            schedule.node_list_failed(&Error::Unavailable(String::new()), start, start);
            backoffs.push((schedule.nodes_due - start).as_secs());
        }
        assert_eq!(backoffs, [1, 2, 4, 8, 15, 15]);
        schedule.nodes_listed(false, start, start);
        assert!(!schedule.is_failing());
        assert_eq!(schedule.nodes_due, start + POLL_INTERVAL);
    }

    #[test]
    fn retry_after_a_timeout_waits_for_the_timeout_of_slurmrestd() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.node_list_failed(&Error::Timeout(seconds(5)), start, start + seconds(5));
        assert_eq!(schedule.nodes_due, start + seconds(10));
    }

    #[rstest]
    #[case::not_requested(&[], &[], Queries::default(), 60, None)]
    #[case::requested(&[], &[], Queries { jobs: true, reservations: false }, 60, Some(Step::ListJobs))]
    #[case::requested_within_the_interval(&[], &[], Queries { jobs: true, reservations: false }, 9, None)]
    #[case::busy(&["a"], &["a"], Queries::default(), 10, Some(Step::ListJobs))]
    #[case::busy_within_the_interval(&["a"], &["a"], Queries::default(), 9, None)]
    #[case::another_node_busy(&["b"], &["a"], Queries::default(), 1, Some(Step::ListJobs))]
    #[case::no_longer_busy(&[], &["a"], Queries::default(), 60, None)]
    #[case::reservations(
        &[], &[], Queries { jobs: false, reservations: true }, 0, Some(Step::ListReservations)
    )]
    fn jobs_are_listed_if_requested_or_nodes_are_busy(
        #[case] now_busy: &[&str],
        #[case] busy_before: &[&str],
        #[case] queries: Queries,
        #[case] after: u64,
        #[case] expected: Option<Step>,
    ) {
        let start = Instant::now();
        let now = start + seconds(after);
        let mut schedule = Schedule::new(start);
        schedule.jobs_read(&busy(busy_before), true, start, start);
        schedule.request(queries, now);
        schedule.nodes_listed(true, now, now);
        let step = schedule.next_step(false, &busy(now_busy), now);
        assert_eq!(step, expected.unwrap_or(Step::Wait(now + POLL_INTERVAL)));
    }

    #[test]
    fn failing_cluster_is_asked_for_nodes_only() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.request(Queries { jobs: true, reservations: true }, start);
        schedule.node_list_failed(&Error::Unavailable(String::new()), start, start);
        assert_eq!(schedule.next_step(false, &busy(&["a"]), start), Step::Wait(start + POLL_INTERVAL));
    }

    #[test]
    fn cluster_without_reader_is_idle_after_5_min_and_one_notification() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        assert!(!schedule.requests_readers(start + seconds(239)));
        assert!(schedule.requests_readers(start + seconds(240)));
        assert!(!schedule.requests_readers(start + seconds(241)), "readers are notified once");
        assert!(!schedule.is_idle(start + seconds(299)));
        assert!(schedule.is_idle(start + seconds(300)));
        schedule.request(Queries::default(), start + seconds(299));
        assert!(!schedule.is_idle(start + seconds(300)));
        assert!(schedule.requests_readers(start + seconds(299 + 240)));
    }
}
