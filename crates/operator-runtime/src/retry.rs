//! Repeats a read-change-write that lost a race. The only place that uses the `backoff` crate.
//!
//! The attempt reads the newest version, derives the change from it and writes it with its resourceVersion; it has no
//! other effect. Never wrap a create: its 409 means that the object exists, and repeating it does not help.

use crate::metrics::{METRICS, OutcomeLabel};
use std::time::Duration;
use tracing::debug;

/// How often and how fast to repeat.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Attempts in total.
    pub steps: u32,
    /// The delay before the second attempt.
    pub delay: Duration,
    /// By what each further delay is multiplied.
    pub factor: f64,
    /// The largest share of a delay that chance adds to it.
    pub jitter: f64,
}

/// For objects that several clients write: the winner of one race rarely starts another.
pub const DEFAULT_RETRY: Policy =
    Policy { steps: 5, delay: Duration::from_millis(10), factor: 1.0, jitter: 0.1 };

/// For objects of our own, where a conflict means that a replica of ours is at work.
pub const DEFAULT_BACKOFF: Policy =
    Policy { steps: 4, delay: Duration::from_millis(10), factor: 5.0, jitter: 0.1 };

/// Calls `attempt` until it ends in anything but 409 Conflict, or the policy is used up.
///
/// `None` means that the object is gone: there is nothing left to change.
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
        debug!(%error, ?delay, "Write conflict, trying again");
    };
    let result = backoff::future::retry_notify(Delays::from(policy), operation, notify).await;
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

/// The delays that a policy allows, one after the other.
struct Delays {
    left: u32,
    next: Duration,
    factor: f64,
    jitter: f64,
}

impl From<Policy> for Delays {
    fn from(policy: Policy) -> Self {
        Self {
            left: policy.steps.saturating_sub(1),
            next: policy.delay,
            factor: policy.factor,
            jitter: policy.jitter,
        }
    }
}

impl backoff::backoff::Backoff for Delays {
    fn next_backoff(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let delay = self.next.mul_f64(1.0 + self.jitter * rand::random::<f64>());
        self.next = self.next.mul_f64(self.factor);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_BACKOFF, DEFAULT_RETRY, Delays, Policy, retry_on_conflict};
    use backoff::backoff::Backoff;
    use kube::core::Status;
    use rstest::rstest;
    use std::cell::Cell;

    fn failure(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("x", reason).with_code(code)))
    }

    #[rstest]
    #[case::several_writers(DEFAULT_RETRY, &[10, 10, 10, 10])]
    #[case::own_object(DEFAULT_BACKOFF, &[10, 50, 250])]
    fn delays_follow_the_policy(#[case] policy: Policy, #[case] expected: &[u64]) {
        let mut delays = Delays::from(policy);
        for base in expected {
            let delay = delays.next_backoff().expect("another delay").as_secs_f64() * 1000.0;
            let base = f64::from(u32::try_from(*base).unwrap());
            assert!((base..=base * 1.1).contains(&delay), "{delay} ms is not within 10 % above {base} ms");
        }
        assert_eq!(delays.next_backoff(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn gives_up_after_the_allowed_attempts() {
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
    async fn succeeds_on_the_attempt_that_wins() {
        let attempts = Cell::new(0);
        let result = retry_on_conflict(DEFAULT_RETRY, || {
            attempts.set(attempts.get() + 1);
            let won = attempts.get() == 3;
            async move { if won { Ok("written") } else { Err(failure(409, "Conflict")) } }
        })
        .await;
        assert_eq!(result.unwrap(), Some("written"));
        assert_eq!(attempts.get(), 3);
    }

    #[rstest]
    #[case::a_gone_object_needs_no_change(404, "NotFound", true)]
    #[case::a_create_that_exists_is_not_repeated(409, "AlreadyExists", false)]
    #[case::other_errors_are_not_repeated(500, "InternalError", false)]
    #[tokio::test]
    async fn only_conflicts_are_repeated(#[case] code: u16, #[case] reason: &str, #[case] done: bool) {
        let attempts = Cell::new(0);
        let result = retry_on_conflict(DEFAULT_RETRY, || {
            attempts.set(attempts.get() + 1);
            async { Err::<(), _>(failure(code, reason)) }
        })
        .await;
        assert_eq!(attempts.get(), 1);
        assert_eq!(matches!(result, Ok(None)), done, "{result:?}");
    }
}
