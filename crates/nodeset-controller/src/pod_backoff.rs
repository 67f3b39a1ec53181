//! Backoff of pods that fail, or do not register in Slurm, again and again: the pod that replaces one has the same name,
//! and is deleted in its turn no sooner than the delay of its predecessor allows.
//!
//! The delay is written to the new pod, so that the next replica or process that works on the NodeSet knows it.

use crate::timing::UNREGISTERED_LIMIT;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use slinky_api::labels::annotations::POD_RETRY_DELAY;
use std::collections::BTreeMap;

/// Delay after the first failure.
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// Longest delay.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_mins(15);

/// The earliest time at which each failed pod may be replaced, by pod name.
pub type RetryTimes = BTreeMap<String, Timestamp>;

/// How long after its creation each pod that replaces a failed one may be replaced, by pod name.
pub type RetryDelays = BTreeMap<String, SignedDuration>;

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

    /// How long after its creation each pod that replaces a failed one may be replaced.
    pub fn retry_delays(&self) -> RetryDelays {
        self.0.iter().map(|(pod, failures)| (pod.clone(), failures.delay)).collect()
    }

    /// Restores what the pods tell of the failures before them, where nothing else is known.
    pub fn restore<'a>(&mut self, pods: impl IntoIterator<Item = &'a Pod>) {
        for pod in pods {
            let Some(delay) = pod.annotations().get(POD_RETRY_DELAY) else { continue };
            let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0);
            if let (Ok(seconds), Some(last)) = (delay.parse::<u32>(), created) {
                let delay = SignedDuration::from_secs(seconds.into()).min(LONGEST_DELAY);
                self.0.entry(pod.name_any()).or_insert(Failures { last, delay });
            }
        }
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
    use super::{PodBackoff, RetryDelays};
    use crate::plan::testing::minute;
    use jiff::{SignedDuration, Timestamp};
    use k8s_openapi::api::core::v1::Pod;
    use rstest::rstest;
    use serde_json::json;

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

    fn pod(name: &str, created: Timestamp, delay: &str) -> Pod {
        let annotations = json!({ "nodeset.slinky.slurm.net/pod-retry-delay": delay });
        let metadata = json!({ "name": name, "creationTimestamp": created, "annotations": annotations });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn next_process_goes_on_with_the_delays_of_the_last_one() {
        let mut first = PodBackoff::default();
        for minute in [minute(0), minute(1), minute(2)] {
            first.record_failure("gpu-0", minute);
        }
        let delay = first.retry_delays()["gpu-0"];
        let mut second = PodBackoff::default();
        second.restore([&pod("gpu-0", minute(2), &delay.as_secs().to_string())]);
        assert_eq!(second.retry_times(), first.retry_times());
        first.record_failure("gpu-0", minute(3));
        second.record_failure("gpu-0", minute(3));
        assert_eq!(second.retry_times(), first.retry_times());
        // What is known is newer than what the pod tells.
        second.restore([&pod("gpu-0", minute(2), "1")]);
        assert_eq!(second.retry_times(), first.retry_times());
    }

    #[rstest]
    #[case::not_a_number("soon", None)]
    #[case::negative("-1", None)]
    #[case::huge("4000000000", Some(900))]
    fn absurd_delays_have_no_absurd_effect(#[case] delay: &str, #[case] seconds: Option<i64>) {
        let mut backoff = PodBackoff::default();
        backoff.restore([&pod("gpu-0", minute(0), delay)]);
        let delays = seconds.map(|seconds| ("gpu-0".to_owned(), SignedDuration::from_secs(seconds)));
        assert_eq!(backoff.retry_delays(), RetryDelays::from_iter(delays));
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
