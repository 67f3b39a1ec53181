//! Exponential backoff per object.
//!
//! Our own because kube 5 passes its error policy neither the number of earlier failures of an object nor its recovery;
//! a failure count per object in kube's controller would replace it.

use crate::jitter::jitter;
use crate::per_object::{ObjectKey, PerObject};
use kube::Resource;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);
/// The largest fraction that is randomly subtracted, so that objects which failed together are not retried together.
const JITTER: f64 = 0.2;

/// The number of consecutive failures of each object.
#[derive(Debug, Default)]
pub struct ErrorBackoff {
    failures: PerObject<u32>,
}

impl ErrorBackoff {
    /// Counts a failure and returns the delay until the next attempt.
    pub fn next<K: Resource<DynamicType = ()>>(&self, object: &K) -> Duration {
        let earlier_failures = self.failures.with(object, |failures| {
            let earlier = *failures;
            *failures = failures.saturating_add(1);
            earlier
        });
        delay(earlier_failures, jitter())
    }

    /// Resets the count of an object that recovered or was deleted.
    pub fn forget(&self, object: &ObjectKey) {
        self.failures.forget(object);
    }
}

/// The delay after a failure with `earlier_failures` before it; `random` is in 0..1.
pub fn delay(earlier_failures: u32, random: f64) -> Duration {
    // 2^16 s is far above LONGEST; a larger exponent could overflow.
    let doubled = FIRST * 2_u32.pow(earlier_failures.min(16));
    doubled.min(LONGEST).mul_f64(1.0 - JITTER * random)
}

#[cfg(test)]
mod tests {
    use super::{ErrorBackoff, delay};
    use crate::per_object::ObjectKey;
    use k8s_openapi::api::core::v1::ConfigMap;
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case::first(0, 0.0, 1.0)]
    #[case::doubles(3, 0.0, 8.0)]
    #[case::last_below_the_cap(8, 0.0, 256.0)]
    #[case::capped(9, 0.0, 300.0)]
    #[case::never_overflows(u32::MAX, 0.0, 300.0)]
    #[case::jitter_shortens_by_a_fifth_at_most(3, 1.0, 6.4)]
    fn delay_doubles_per_failure_up_to_the_cap(
        #[case] earlier_failures: u32,
        #[case] random: f64,
        #[case] seconds: f64,
    ) {
        assert_eq!(delay(earlier_failures, random), Duration::from_secs_f64(seconds));
    }

    #[test]
    fn delay_is_reset_by_forget() {
        let backoff = ErrorBackoff::default();
        let object = ConfigMap::default();
        let _ = backoff.next(&object);
        assert!(backoff.next(&object) > Duration::from_secs(1));
        backoff.forget(&ObjectKey::of(&object));
        assert!(backoff.next(&object) <= Duration::from_secs(1));
    }
}
