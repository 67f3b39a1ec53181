//! Durations that depend on one another, and arithmetic on them.

use jiff::Timestamp;
use std::time::Duration;

/// The part of a pause that is left; `None` if it is over. A clock that was set back ends the pause.
pub fn remaining(pause: Duration, since: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(since?)).ok()?;
    pause.checked_sub(age).filter(|left| !left.is_zero())
}
