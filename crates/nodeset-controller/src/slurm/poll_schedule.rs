//! What to ask a cluster for, and when. Pure.
//!
//! Questions come one after another: slurmrestd blocks one of its few threads for each while slurmctld is away. How long
//! an answer took says how dear it was, and the pause after it grows with that.

use crate::timing::{
    FULL_LIST_INTERVAL, IDLE_AFTER, JOB_LIST_INTERVAL, MAX_BACKOFF, MAX_REST, POLL_INTERVAL,
    REQUEST_READERS_AFTER, SLURMRESTD_TIMEOUT,
};
use slurm_rest::Error;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// What somebody wants to know besides the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queries {
    /// How many jobs name each partition, and which take new ones. What jobs hold is asked for anyway while a node is busy.
    pub jobs: bool,
    /// The reservations.
    pub reservations: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for nodes; for all of them, or only if something changed.
    Nodes {
        /// Whether or not something changed.
        all: bool,
    },
    /// Ask for jobs.
    Jobs,
    /// Ask for reservations.
    Reservations,
    /// Nothing before then.
    Wait(Instant),
}

/// Something that is asked for when it is wanted.
#[derive(Debug, Default)]
struct Errand {
    wanted: Option<Instant>,
    asked: Option<Instant>,
    rests_until: Option<Instant>,
}

impl Errand {
    /// Says that it is wanted; whether that is news.
    fn want(&mut self, now: Instant) -> bool {
        let is_news = !self.is_wanted(now);
        self.wanted = Some(now);
        is_news
    }

    fn is_wanted(&self, now: Instant) -> bool {
        self.wanted.is_some_and(|wanted| now < wanted + IDLE_AFTER)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_rested(now) && self.asked.is_none_or(|asked| asked + JOB_LIST_INTERVAL <= now)
    }

    fn is_rested(&self, now: Instant) -> bool {
        self.rests_until.is_none_or(|until| until <= now)
    }

    fn done(&mut self, asked: Instant, now: Instant) {
        (self.asked, self.rests_until) = (Some(asked), Some(now + rest(now - asked)));
    }
}

/// When what is asked for.
#[derive(Debug)]
pub struct Schedule {
    wanted: Instant,
    called: bool,
    nodes_due: Instant,
    all_due: Instant,
    failures: u32,
    jobs: Errand,
    /// The busy nodes when jobs were asked for last.
    held: BTreeSet<String>,
    reservations: Errand,
}

impl Schedule {
    /// Everything is wanted at once.
    pub fn new(now: Instant) -> Self {
        Self {
            wanted: now,
            called: false,
            nodes_due: now,
            all_due: now,
            failures: 0,
            jobs: Errand::default(),
            held: BTreeSet::new(),
            reservations: Errand::default(),
        }
    }

    /// Somebody wants to know; whether there is something new to ask for.
    pub fn want(&mut self, wish: Queries, now: Instant) -> bool {
        (self.wanted, self.called) = (now, false);
        let jobs = wish.jobs && self.jobs.want(now);
        let reservations = wish.reservations && self.reservations.want(now);
        jobs || reservations
    }

    /// Whether nobody wants to know any more.
    pub fn is_over(&self, now: Instant) -> bool {
        self.wanted + IDLE_AFTER <= now
    }

    /// Whether to ask, once, who still wants to know: they are not heard of while nothing happens.
    pub fn calls(&mut self, now: Instant) -> bool {
        let calls = !self.called && self.wanted + REQUEST_READERS_AFTER <= now;
        self.called |= calls;
        calls
    }

    /// Whether somebody wishes to know of jobs even if no node is busy.
    pub fn wishes_jobs(&self, now: Instant) -> bool {
        self.jobs.is_wanted(now)
    }

    /// Whether somebody wishes to know of reservations.
    pub fn wishes_reservations(&self, now: Instant) -> bool {
        self.reservations.is_wanted(now)
    }

    /// Whether the last question about nodes failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether the cluster is left alone for a while because it failed.
    pub fn is_pausing(&self, now: Instant) -> bool {
        self.is_failing() && now < self.nodes_due
    }

    /// What to do now. `look`: somebody waits for a look at all nodes. `busy`: the nodes that jobs are known to hold.
    pub fn next(&self, look: bool, busy: &BTreeSet<String>, now: Instant) -> Step {
        if look || self.nodes_due <= now {
            return Step::Nodes { all: look || self.all_due <= now };
        }
        if !self.is_failing() {
            let changed = *busy != self.held && self.jobs.is_rested(now);
            let wanted = !busy.is_empty() || self.wishes_jobs(now);
            if wanted && (changed || self.jobs.is_due(now)) {
                return Step::Jobs;
            }
            if self.wishes_reservations(now) && self.reservations.is_due(now) {
                return Step::Reservations;
            }
        }
        Step::Wait(self.nodes_due.min(now + POLL_INTERVAL))
    }

    /// All nodes are due at once: somebody else answers from now on.
    pub fn start_over(&mut self, now: Instant) {
        (self.nodes_due, self.all_due, self.failures) = (now, now, 0);
    }

    /// Nodes were asked for, and the answer is here.
    pub fn nodes_answered(&mut self, all: bool, asked: Instant, now: Instant) {
        (self.failures, self.nodes_due) = (0, now + rest(now - asked));
        if all {
            self.all_due = asked + FULL_LIST_INTERVAL;
        }
    }

    /// Nodes were asked for in vain.
    pub fn nodes_failed(&mut self, error: &Error, asked: Instant, now: Instant) {
        let pause = POLL_INTERVAL * 2_u32.pow(self.failures.min(4));
        self.failures = self.failures.saturating_add(1);
        self.nodes_due = now + pause.min(MAX_BACKOFF);
        if matches!(error, Error::Timeout(_)) {
            // Only then slurmrestd has let go of the last question.
            self.nodes_due = self.nodes_due.max(asked + SLURMRESTD_TIMEOUT);
        }
    }

    /// Jobs were asked for while these nodes were busy.
    pub fn jobs_asked(&mut self, busy: &BTreeSet<String>, asked: Instant, now: Instant) {
        self.jobs.done(asked, now);
        self.held.clone_from(busy);
    }

    /// Reservations were asked for.
    pub fn reservations_asked(&mut self, asked: Instant, now: Instant) {
        self.reservations.done(asked, now);
    }

    /// Reservations changed: ask at once.
    pub fn reservations_changed(&mut self) {
        self.reservations = Errand { wanted: self.reservations.wanted, ..Errand::default() };
    }
}

/// The pause after an answer that took so long: at most a fifth of the time is spent on answers.
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
    fn dear_answers_are_asked_for_less_often(#[case] took: u64, #[case] pause: u64) {
        assert_eq!(rest(Duration::from_millis(took)), Duration::from_millis(pause));
    }

    #[test]
    fn pauses_double_up_to_15_s_and_success_ends_them() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        let mut pauses = vec![];
        for _ in 0..6 {
            schedule.nodes_failed(&Error::Unavailable(String::new()), start, start);
            pauses.push((schedule.nodes_due - start).as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15]);
        schedule.nodes_answered(false, start, start);
        assert!(!schedule.is_failing());
        assert_eq!(schedule.nodes_due, start + POLL_INTERVAL);
    }

    #[test]
    fn after_a_timeout_slurmrestd_gets_the_time_that_it_needs() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.nodes_failed(&Error::Timeout(seconds(5)), start, start + seconds(5));
        assert_eq!(schedule.nodes_due, start + seconds(10));
    }

    #[rstest]
    #[case::nobody_wants_them(&[], &[], Queries::default(), 60, None)]
    #[case::a_wish(&[], &[], Queries { jobs: true, reservations: false }, 60, Some(Step::Jobs))]
    #[case::a_wish_just_served(&[], &[], Queries { jobs: true, reservations: false }, 9, None)]
    #[case::busy(&["a"], &["a"], Queries::default(), 10, Some(Step::Jobs))]
    #[case::busy_as_before(&["a"], &["a"], Queries::default(), 9, None)]
    #[case::busy_anew(&["b"], &["a"], Queries::default(), 1, Some(Step::Jobs))]
    #[case::busy_no_more(&[], &["a"], Queries::default(), 60, None)]
    #[case::reservations(&[], &[], Queries { jobs: false, reservations: true }, 0, Some(Step::Reservations))]
    fn jobs_are_asked_for_when_needed(
        #[case] now_busy: &[&str],
        #[case] busy_before: &[&str],
        #[case] wish: Queries,
        #[case] after: u64,
        #[case] expected: Option<Step>,
    ) {
        let start = Instant::now();
        let now = start + seconds(after);
        let mut schedule = Schedule::new(start);
        schedule.jobs_asked(&busy(busy_before), start, start);
        schedule.want(wish, now);
        schedule.nodes_answered(true, now, now);
        let step = schedule.next(false, &busy(now_busy), now);
        assert_eq!(step, expected.unwrap_or(Step::Wait(now + POLL_INTERVAL)));
    }

    #[test]
    fn nothing_but_nodes_is_asked_of_a_cluster_that_fails() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.want(Queries { jobs: true, reservations: true }, start);
        schedule.nodes_failed(&Error::Unavailable(String::new()), start, start);
        assert_eq!(schedule.next(false, &busy(&["a"]), start), Step::Wait(start + POLL_INTERVAL));
    }

    #[test]
    fn interest_ends_after_one_call_unless_it_is_renewed() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        assert!(!schedule.calls(start + seconds(239)));
        assert!(schedule.calls(start + seconds(240)));
        assert!(!schedule.calls(start + seconds(241)), "one call is enough");
        assert!(!schedule.is_over(start + seconds(299)));
        assert!(schedule.is_over(start + seconds(300)));
        schedule.want(Queries::default(), start + seconds(299));
        assert!(!schedule.is_over(start + seconds(300)));
        assert!(schedule.calls(start + seconds(299 + 240)));
    }
}
