//! Retries a read-modify-write on conflict. The only user of the `backoff` crate.
//!
//! An attempt reads the latest version, derives the change from it and writes it with its resourceVersion; it has no
//! other effect. Never wrap a create: its 409 means that the object exists, and a retry does not help.

use crate::metrics::{METRICS, OutcomeLabel};
use std::time::Duration;
use tracing::debug;

/// Number of attempts and delays between them.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The total number of attempts.
    pub steps: u32,
    /// The delay before the second attempt.
    pub delay: Duration,
    /// The factor from one delay to the next.
    pub factor: f64,
    /// The largest fraction that is randomly added to a delay.
    pub jitter: f64,
}

/// For objects with several writers, which rarely conflict twice in a row.
pub const DEFAULT_RETRY: Policy =
    Policy { steps: 5, delay: Duration::from_millis(10), factor: 1.0, jitter: 0.1 };

/// Calls `attempt` until it returns anything but 409 Conflict, or the policy allows no further attempt.
///
/// `None` means that the object was not found: there is nothing to change.
pub async fn retry_on_conflict<T, F, Fut>(policy: Policy, mut attempt: F) -> Result<Option<T>, kube::Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, kube::Error>>,
{
    let operation = || {
        METRICS.conflict_attempts.inc();
        let attempt = attempt();
        async {
            attempt.await.map_err(|error| {
                if is_conflict(&error) {
                    backoff::Error::transient(error)
                } else {
                    backoff::Error::permanent(error)
                }
            })
        }
    };
    let notify = |error: kube::Error, delay: Duration| {
        debug!(%error, ?delay, "Write conflict; retrying");
    };
    let result = backoff::future::retry_notify(Delays(policy), operation, notify).await;
    let (outcome, result) = match result {
        Ok(value) => ("succeeded", Ok(Some(value))),
        Err(kube::Error::Api(status)) if status.is_not_found() => ("gone", Ok(None)),
        Err(error) if is_conflict(&error) => ("exhausted", Err(error)),
        Err(error) => ("failed", Err(error)),
    };
    METRICS.conflict_outcomes.get_or_create(&OutcomeLabel { outcome }).inc();
    result
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

/// The delays of a policy, in order. The policy is that of the attempts which are left.
struct Delays(Policy);

impl backoff::backoff::Backoff for Delays {
    fn next_backoff(&mut self) -> Option<Duration> {
        let Policy { steps, delay, factor, jitter } = self.0;
        let steps = steps.checked_sub(1).filter(|left| *left > 0)?;
        self.0 = Policy { steps, delay: delay.mul_f64(factor), factor, jitter };
        Some(delay.mul_f64(1.0 + jitter * crate::jitter::jitter()))
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_RETRY, Delays, Policy, retry_on_conflict};
    use backoff::backoff::Backoff;
    use kube::core::Status;
    use rstest::rstest;
    use std::cell::Cell;
    use std::time::Duration;

    const GROWING: Policy = Policy { steps: 4, delay: Duration::from_millis(10), factor: 5.0, jitter: 0.1 };

    fn failure(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("x", reason).with_code(code)))
    }

    #[rstest]
    #[case::constant(DEFAULT_RETRY, &[10, 10, 10, 10])]
    #[case::growing(GROWING, &[10, 50, 250])]
    fn delays_follow_the_policy(#[case] policy: Policy, #[case] expected: &[u64]) {
        let mut delays = Delays(policy);
        for base in expected {
            let delay = delays.next_backoff().expect("another delay").as_secs_f64() * 1000.0;
            let base = f64::from(u32::try_from(*base).unwrap());
            assert!((base..=base * 1.1).contains(&delay), "{delay} ms is not within 10 % above {base} ms");
        }
        assert_eq!(delays.next_backoff(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn last_conflict_is_returned_after_all_attempts() {
        let attempts = Cell::new(0);
        let result = retry_on_conflict(DEFAULT_RETRY, || {
            attempts.set(attempts.get() + 1);
            async { Err::<(), _>(failure(409, "Conflict")) }
        })
        .await;
        assert_eq!(attempts.get(), 5);
        assert!(matches!(result, Err(kube::Error::Api(status)) if status.is_conflict()));
    }

    #[tokio::test(start_paused = true)]
    async fn conflict_is_retried_until_the_write_succeeds() {
        let attempts = Cell::new(0);
        let result = retry_on_conflict(DEFAULT_RETRY, || {
            attempts.set(attempts.get() + 1);
            let succeeds = attempts.get() == 3;
            async move { if succeeds { Ok("written") } else { Err(failure(409, "Conflict")) } }
        })
        .await;
        assert_eq!(result.unwrap(), Some("written"));
        assert_eq!(attempts.get(), 3);
    }

    #[rstest]
    #[case::not_found_is_none(404, "NotFound", true)]
    #[case::already_exists(409, "AlreadyExists", false)]
    #[case::internal_error(500, "InternalError", false)]
    #[tokio::test]
    async fn other_errors_are_not_retried(#[case] code: u16, #[case] reason: &str, #[case] is_none: bool) {
        let attempts = Cell::new(0);
        let result = retry_on_conflict(DEFAULT_RETRY, || {
            attempts.set(attempts.get() + 1);
            async { Err::<(), _>(failure(code, reason)) }
        })
        .await;
        assert_eq!(attempts.get(), 1);
        assert_eq!(matches!(result, Ok(None)), is_none, "{result:?}");
    }
}
