//! Until when the holder of a batch may send.

use crate::timing::Timing;
use std::time::Duration;

/// The time of one batch on its holder's clock, which has to run while the machine sleeps.
///
/// It starts when the request for the batch is sent **first**: whatever happens to the messages, the service counts from
/// a later moment. Nothing prolongs or shortens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchClock {
    deadline: Duration,
    write_limit: Duration,
}

impl BatchClock {
    /// The clock of a batch whose first request is sent now.
    pub fn start(now: Duration, timing: &Timing) -> Self {
        Self { deadline: now.saturating_add(timing.lease), write_limit: timing.write_limit }
    }

    /// When the last write has to be answered.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Whether a write may be sent, `now` being read right before. It is given up when it was not answered within the
    /// time limit of a write, connecting included.
    pub fn may_send(&self, now: Duration) -> bool {
        now.saturating_add(self.write_limit) <= self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::BatchClock;
    use crate::timing::Timing;
    use rstest::rstest;
    use std::time::Duration;

    const SENT: Duration = Duration::from_secs(1000);

    #[rstest]
    #[case::at_once(0, true)]
    #[case::last_moment_for_a_write_to_be_answered(15_000, true)]
    #[case::answer_could_come_after_the_deadline(15_001, false)]
    #[case::after_a_long_sleep(1_000_000, false)]
    fn a_write_is_sent_only_if_its_answer_comes_before_the_deadline(#[case] millis: u64, #[case] may: bool) {
        let clock = BatchClock::start(SENT, &Timing::default());
        assert_eq!(clock.may_send(SENT + Duration::from_millis(millis)), may);
    }

    #[test]
    fn the_deadline_counts_from_the_first_sending() {
        assert_eq!(BatchClock::start(SENT, &Timing::default()).deadline(), SENT + Duration::from_secs(25));
    }

    #[test]
    fn a_lease_shorter_than_a_write_sends_nothing() {
        let timing = Timing { lease: Duration::from_secs(5), ..Timing::default() };
        assert!(!BatchClock::start(SENT, &timing).may_send(SENT));
    }
}
