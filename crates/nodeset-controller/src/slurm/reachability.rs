//! Decides from the time since Slurm last answered whether it counts as unreachable, and what follows. Pure.

use crate::timing::{DEGRADED_AFTER, PROTECT_WORKERS_AFTER, STALE_AFTER};
use std::time::Duration;

/// Whether a list of this age is too old for decisions. A stale node list makes the cluster [`super::View::Unknown`].
pub fn is_stale(age: Duration) -> bool {
    age >= STALE_AFTER
}

/// Whether workers that Slurm knew must be protected from eviction: they may run jobs that started since.
pub fn must_protect_workers(unreachable_for: Duration) -> bool {
    unreachable_for >= PROTECT_WORKERS_AFTER
}

/// The time until [`must_protect_workers`]; `None` if that is now.
pub fn protects_workers_in(unreachable_for: Duration) -> Option<Duration> {
    time_left(PROTECT_WORKERS_AFTER, unreachable_for)
}

/// Whether a NodeSet is degraded because Slurm is unreachable.
pub fn is_degraded(unreachable_for: Duration) -> bool {
    unreachable_for >= DEGRADED_AFTER
}

/// The time until [`is_degraded`]; `None` if that is now.
pub fn degrades_in(unreachable_for: Duration) -> Option<Duration> {
    time_left(DEGRADED_AFTER, unreachable_for)
}

fn time_left(threshold: Duration, elapsed: Duration) -> Option<Duration> {
    threshold.checked_sub(elapsed).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::just_answered(0, (false, false, false), (Some(90), Some(300)))]
    #[case::fresh(29, (false, false, false), (Some(61), Some(271)))]
    #[case::stale(30, (true, false, false), (Some(60), Some(270)))]
    #[case::before_protection(89, (true, false, false), (Some(1), Some(211)))]
    #[case::protected(90, (true, true, false), (None, Some(210)))]
    #[case::before_degraded(299, (true, true, false), (None, Some(1)))]
    #[case::degraded(300, (true, true, true), (None, None))]
    fn thresholds_are_reached_in_this_order(
        #[case] seconds: u64,
        #[case] reached: (bool, bool, bool),
        #[case] left: (Option<u64>, Option<u64>),
    ) {
        let elapsed = Duration::from_secs(seconds);
        assert_eq!((is_stale(elapsed), must_protect_workers(elapsed), is_degraded(elapsed)), reached);
        let in_seconds = |left: Option<Duration>| left.map(|left| left.as_secs());
        assert_eq!((in_seconds(protects_workers_in(elapsed)), in_seconds(degrades_in(elapsed))), left);
    }
}
