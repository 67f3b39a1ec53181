//! Waiting for a condition, with a deadline and a look at what was seen.

use anyhow::{Result, bail};
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(50);

/// Looks until `observe` gives something for which `holds`, and returns it. What was seen last, an error included, is
/// shown if time runs out.
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
        let seen = observe().await;
        match seen {
            Ok(seen) if holds(&seen) => return Ok(seen),
            seen if Instant::now() >= deadline => bail!("{what}: not within {limit:?}; last seen: {seen:#?}"),
            _ => sleep(POLL).await,
        }
    }
}
