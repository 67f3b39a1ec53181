//! Backoff of pods that fail, or do not register in Slurm, again and again: the pod that replaces one has the same name,
//! and is deleted in its turn no sooner than the delay of its predecessor allows.

use crate::timing::UNREGISTERED_LIMIT;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Delay after the first failure.
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// Longest delay.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_mins(15);

/// The earliest time at which each failed pod may be replaced, by pod name.
pub type RetryTimes = BTreeMap<String, Timestamp>;

/// The failures of the pods of one NodeSet, by pod name.
#[derive(Debug, Default)]
pub struct PodBackoff(BTreeMap<String, Failures>);

/// Failures of pods of one name.
#[derive(Clone, Copy, Debug)]
struct Failures {
    last: Timestamp,
    delay: SignedDuration,
}

impl PodBackoff {
    /// The earliest time at which each failed pod may be replaced.
    pub fn retry_times(&self) -> RetryTimes {
        self.0.iter().map(|(pod, failures)| (pod.clone(), failures.last + failures.delay)).collect()
    }

    /// Records that a failed pod is being replaced: the delay doubles if its successor fails too. Names without a failure
    /// for two longest delays start from the first delay.
    pub fn record_failure(&mut self, pod: &str, now: Timestamp) {
        self.record(pod, FIRST_DELAY, now);
    }

    /// The same for a pod that did not register in Slurm, whose successor has some time to do so in any case.
    pub fn record_unregistered(&mut self, pod: &str, now: Timestamp) {
        self.record(pod, UNREGISTERED_LIMIT * 2, now);
    }

    fn record(&mut self, pod: &str, first: SignedDuration, now: Timestamp) {
        self.0.retain(|_, failures| failures.last + LONGEST_DELAY + LONGEST_DELAY > now);
        let first = Failures { last: now, delay: first / 2 };
        let failures = self.0.entry(pod.to_owned()).or_insert(first);
        *failures = Failures { last: now, delay: (failures.delay * 2).min(LONGEST_DELAY) };
    }
}

#[cfg(test)]
mod tests {
    use super::PodBackoff;
    use crate::plan::testing::minute;
    use jiff::SignedDuration;

    #[test]
    fn delays_double_from_one_second_to_fifteen_minutes() {
        let (mut backoff, mut now, mut delays) = (PodBackoff::default(), minute(0), vec![]);
        for _ in 0..13 {
            backoff.record_failure("gpu-0", now);
            let retry = backoff.retry_times()["gpu-0"];
            delays.push(retry.duration_since(now).as_secs());
            now = retry;
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]);
    }

    #[test]
    fn unregistered_pods_are_replaced_less_and_less_often() {
        let (mut backoff, mut now, mut delays) = (PodBackoff::default(), minute(0), vec![]);
        for _ in 0..4 {
            backoff.record_unregistered("gpu-0", now);
            let retry = backoff.retry_times()["gpu-0"];
            delays.push(retry.duration_since(now).as_mins());
            now = retry;
        }
        assert_eq!(delays, [4, 8, 15, 15]);
    }

    #[test]
    fn pods_back_off_separately_and_old_failures_are_dropped() {
        let mut backoff = PodBackoff::default();
        backoff.record_failure("gpu-0", minute(0));
        backoff.record_failure("gpu-0", minute(1));
        backoff.record_failure("gpu-1", minute(2));
        let second = SignedDuration::from_secs(1);
        assert_eq!(backoff.retry_times()["gpu-0"], minute(1) + second * 2);
        assert_eq!(backoff.retry_times()["gpu-1"], minute(2) + second);
        backoff.record_failure("gpu-1", minute(31));
        let retry_times = backoff.retry_times();
        assert_eq!(
            retry_times.keys().collect::<Vec<_>>(),
            ["gpu-1"],
            "30 min after the last failure of gpu-0"
        );
        assert_eq!(retry_times["gpu-1"], minute(31) + second * 2);
    }
}
