//! Waiting for a condition with a deadline.

#![expect(clippy::disallowed_types, reason = "the deadline of a command, on which no result depends")]

use anyhow::{Context, Result};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(50);

/// Repeats `probe` until it succeeds, and fails with its last error after `timeout`.
pub fn until<T>(timeout: Duration, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                return Err(error).with_context(|| format!("timed out after {} s", timeout.as_secs()));
            }
            Err(_) => pause(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the pause between two probes of a condition with a deadline")]
fn pause() {
    std::thread::sleep(INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::until;
    use anyhow::anyhow;
    use std::time::Duration;

    #[test]
    fn first_success_ends_the_wait() {
        let mut probes = 0;
        let result = until(Duration::from_mins(1), || {
            probes += 1;
            if probes == 3 { Ok(probes) } else { Err(anyhow!("not yet")) }
        });
        assert_eq!(result.ok(), Some(3));
    }

    #[test]
    fn last_error_is_returned_after_the_timeout() {
        let mut probes = 0;
        let error = until::<()>(Duration::from_millis(120), || {
            probes += 1;
            Err(anyhow!("probe {probes}"))
        });
        let text = format!("{:#}", error.expect_err("the probe never succeeds"));
        assert!(probes > 1 && text.contains(&format!("probe {probes}")), "{text}");
    }
}
