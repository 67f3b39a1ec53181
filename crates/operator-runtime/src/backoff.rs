//! Delays between attempts for one object, growing while it fails. kube tells its error policy neither how often an
//! object failed before nor that it recovered, so this is remembered here.

use crate::per_object::{ObjectKey, PerObject};
use kube::Resource;
use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(5);
/// The share of a delay that chance may take off, so that objects which failed together do not come back together.
const JITTER: f64 = 0.2;

/// How often each object failed in a row.
#[derive(Debug, Default)]
pub struct ErrorBackoff {
    failures: PerObject<u32>,
}

impl ErrorBackoff {
    /// Counts one more failure and says how long to wait.
    pub fn next<K: Resource<DynamicType = ()>>(&self, object: &K) -> Duration {
        let earlier_failures = self.failures.with(object, |failures| {
            let earlier = *failures;
            *failures = failures.saturating_add(1);
            earlier
        });
        delay(earlier_failures, rand::random())
    }

    /// The object recovered or is gone.
    pub fn forget(&self, object: &ObjectKey) {
        self.failures.forget(object);
    }
}

/// The delay after a failure that `earlier_failures` preceded; `chance` is in 0..1.
fn delay(earlier_failures: u32, chance: f64) -> Duration {
    // Beyond 2^16 seconds the cap has long won.
    let doubled = FIRST * 2_u32.pow(earlier_failures.min(16));
    doubled.min(LONGEST).mul_f64(1.0 - JITTER * chance)
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
    fn delays(#[case] earlier_failures: u32, #[case] chance: f64, #[case] seconds: f64) {
        assert_eq!(delay(earlier_failures, chance), Duration::from_secs_f64(seconds));
    }

    #[test]
    fn success_starts_over() {
        let backoff = ErrorBackoff::default();
        let object = ConfigMap::default();
        let _ = backoff.next(&object);
        assert!(backoff.next(&object) > Duration::from_secs(1));
        backoff.forget(&ObjectKey::of(&object));
        assert!(backoff.next(&object) <= Duration::from_secs(1));
    }
}
