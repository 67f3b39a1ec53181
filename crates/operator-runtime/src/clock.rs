//! The clock that protocols with deadlines use.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// `CLOCK_BOOTTIME`: the time since the machine was started, suspend included.
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}
