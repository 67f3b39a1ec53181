//! Waiting for a condition with a deadline.

use anyhow::{Result, bail};
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval between two observations.
const POLL: Duration = Duration::from_millis(50);

/// Calls `observe` until its value satisfies `holds`, and returns that value. The error after `limit` shows the last
/// observation, errors included.
pub async fn eventually<T, F>(
    what: &str,
    limit: Duration,
    mut observe: impl FnMut() -> F,
    holds: impl Fn(&T) -> bool,
) -> Result<T>
where
    T: Debug,
    F: Future<Output = Result<T>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let observed = observe().await;
        match observed {
            Ok(observed) if holds(&observed) => return Ok(observed),
            last if Instant::now() >= deadline => {
                bail!("{what}: not within {limit:?}; last observed: {last:#?}")
            }
            _ => sleep(POLL).await,
        }
    }
}
