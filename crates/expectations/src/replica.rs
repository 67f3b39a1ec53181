//! The deadline of a batch on its holder's clock.

use crate::timing::Timing;
use std::time::Duration;

/// The lease of one batch on its holder's clock, which must run during suspend.
///
/// It starts when `Begin` is sent for the **first** time: the service starts counting later, even if messages are lost
/// or repeated. Nothing extends or shortens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchClock {
    deadline: Duration,
    write_limit: Duration,
}

impl BatchClock {
    /// The clock of a batch whose first `Begin` is sent now.
    pub fn start(now: Duration, timing: &Timing) -> Self {
        Self { deadline: now.saturating_add(timing.lease), write_limit: timing.write_limit }
    }

    /// When the last write must have been answered.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Whether a write may be sent, with `now` read right before sending. The write must time out after the time limit
    /// of a write, connecting included.
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
    #[case::immediately(0, true)]
    #[case::write_times_out_at_the_deadline(15_000, true)]
    #[case::write_times_out_after_the_deadline(15_001, false)]
    #[case::after_suspend(1_000_000, false)]
    fn write_is_sent_only_if_it_times_out_before_the_deadline(#[case] millis: u64, #[case] expected: bool) {
        let clock = BatchClock::start(SENT, &Timing::default());
        assert_eq!(clock.may_send(SENT + Duration::from_millis(millis)), expected);
    }

    #[test]
    fn deadline_counts_from_the_first_sending() {
        assert_eq!(BatchClock::start(SENT, &Timing::default()).deadline(), SENT + Duration::from_secs(25));
    }

    #[test]
    fn lease_shorter_than_a_write_allows_no_write() {
        let timing = Timing { lease: Duration::from_secs(5), ..Timing::default() };
        assert!(!BatchClock::start(SENT, &timing).may_send(SENT));
    }
}
