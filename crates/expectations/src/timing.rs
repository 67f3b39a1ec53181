//! The timing constants of the protocol and the inequalities between them.
//!
//! The last write of a batch is sent at `lease - write_limit` at the latest and lands at most `landing` later, on the
//! holder's clock from the first sending of `Begin`. The next batch is granted at [`hold`](Timing::hold) at the earliest,
//! on the service's clock from the grant, which is later. The grace covers the difference.

use std::time::Duration;

/// Time left to send writes after `Begin` had to be repeated once.
const TIME_TO_SEND: Duration = Duration::from_secs(5);
/// The rate at which NTP may slew a clock.
const NTP_SLEW_PPM: u32 = 500;
/// A write to Slurm may take this many of its message timeouts to land.
const MESSAGE_TIMEOUTS_TO_LAND: u32 = 4;
/// A replica is dead after this many missed heartbeats at the earliest.
const HEARTBEATS_UNTIL_DEAD: u32 = 3;

/// The timing constants that the service and the replicas have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Time limit of one write, from connecting to the answer.
    pub write_limit: Duration,
    /// Longest time from the check before sending a write to its landing, whether or not the client still waits.
    pub landing: Duration,
    /// Largest difference of two clocks' rates, in parts per million.
    pub rho_ppm: u32,
    /// Time limit of one call to the service.
    pub rpc_limit: Duration,
    /// How long a batch may send writes, from the first sending of its `Begin`.
    pub lease: Duration,
    /// How long after its lease a batch without `Done` still blocks the next one.
    pub grace: Duration,
    /// Slurm's `MessageTimeout`.
    pub message_timeout: Duration,
    /// Interval of a replica's heartbeats.
    pub heartbeat: Duration,
    /// Time without a heartbeat after which a replica is dead.
    pub dead_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            write_limit: Duration::from_secs(10),
            landing: Duration::from_secs(40),
            rho_ppm: 10_000,
            rpc_limit: Duration::from_secs(2),
            lease: Duration::from_secs(25),
            grace: Duration::from_secs(35),
            message_timeout: Duration::from_secs(10),
            heartbeat: Duration::from_secs(2),
            dead_after: Duration::from_secs(6),
        }
    }
}

impl Timing {
    /// How long after its grant a batch without `Done` blocks batches that do more than create.
    pub fn hold(&self) -> Duration {
        self.lease.saturating_add(self.grace)
    }

    /// Refuses constants under which the writes of two batches could overlap.
    pub fn check(&self) -> Result<(), TimingError> {
        let slurm_landing = self.message_timeout.saturating_mul(MESSAGE_TIMEOUTS_TO_LAND);
        let heartbeats = self.heartbeat.saturating_mul(HEARTBEATS_UNTIL_DEAD);
        at_least(self.write_limit, self.message_timeout, TimingError::WriteLimit)?;
        at_least(self.landing, self.write_limit, TimingError::LandingBelowWriteLimit)?;
        at_least(self.landing, slurm_landing, TimingError::LandingBelowSlurm)?;
        at_least(self.rho_ppm, NTP_SLEW_PPM, TimingError::Rho)?;
        at_least(self.lease, self.min_lease(), TimingError::Lease)?;
        at_least(self.grace, self.min_grace(), TimingError::Grace)?;
        at_least(self.dead_after, heartbeats, TimingError::DeadAfter)
    }

    fn min_lease(&self) -> Duration {
        self.write_limit.saturating_add(self.rpc_limit.saturating_mul(2)).saturating_add(TIME_TO_SEND)
    }

    fn min_grace(&self) -> Duration {
        let drift = self.hold().saturating_mul(self.rho_ppm.saturating_mul(2)) / 1_000_000;
        self.landing.saturating_sub(self.write_limit).saturating_add(drift)
    }
}

fn at_least<T: PartialOrd>(
    actual: T,
    minimum: T,
    error: fn(BelowMinimum<T>) -> TimingError,
) -> Result<(), TimingError> {
    if actual < minimum { Err(error(BelowMinimum { actual, minimum })) } else { Ok(()) }
}

/// A constant that is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BelowMinimum<T> {
    /// The configured value.
    pub actual: T,
    /// The smallest valid value.
    pub minimum: T,
}

/// The constant that is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A write would time out while Slurm may still answer.
    #[error("the time limit of a write is {:?}, below Slurm's MessageTimeout of {:?}", .0.actual, .0.minimum)]
    WriteLimit(BelowMinimum<Duration>),
    /// A write could be answered after its assumed landing.
    #[error("the landing time of a write is {:?}, below its time limit of {:?}", .0.actual, .0.minimum)]
    LandingBelowWriteLimit(BelowMinimum<Duration>),
    /// Slurm could perform a write after its assumed landing.
    #[error("the landing time of a write is {:?}, below {:?}: four times Slurm's MessageTimeout", .0.actual, .0.minimum)]
    LandingBelowSlurm(BelowMinimum<Duration>),
    /// Clocks differ by more than assumed.
    #[error("the difference of clock rates is {} ppm, below the {} ppm of NTP", .0.actual, .0.minimum)]
    Rho(BelowMinimum<u32>),
    /// No time to send writes is left after `Begin` was repeated once.
    #[error("the lease is {:?}, below {:?}: one write, two calls to the service and 5 s to send writes", .0.actual, .0.minimum)]
    Lease(BelowMinimum<Duration>),
    /// A late write could land after the next batch was granted.
    #[error("the grace is {:?}, below {:?}: the landing of the last write and the drift of clocks", .0.actual, .0.minimum)]
    Grace(BelowMinimum<Duration>),
    /// One lost heartbeat would remove a replica from the membership.
    #[error("a replica is dead after {:?}, below {:?}: three heartbeats", .0.actual, .0.minimum)]
    DeadAfter(BelowMinimum<Duration>),
}

#[cfg(test)]
mod tests {
    use super::{BelowMinimum, Timing, TimingError};
    use rstest::rstest;
    use std::time::Duration;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn defaults_satisfy_every_inequality() {
        assert_eq!(Timing::default().check(), Ok(()));
        assert_eq!(Timing::default().hold(), millis(60_000));
    }

    /// Each constant at its minimum, and just below.
    #[rstest]
    #[case::write_limit(
        |timing: &mut Timing, less| timing.write_limit = millis(10_000 - less),
        TimingError::WriteLimit(BelowMinimum { actual: millis(9_999), minimum: millis(10_000) })
    )]
    #[case::landing_below_write_limit(
        |timing: &mut Timing, less| {
            timing.write_limit = millis(40_000);
            timing.landing = millis(40_000 - less);
            timing.lease = millis(60_000);
        },
        TimingError::LandingBelowWriteLimit(BelowMinimum { actual: millis(39_999), minimum: millis(40_000) })
    )]
    #[case::landing_below_slurm(
        |timing: &mut Timing, less| timing.landing = millis(40_000 - less),
        TimingError::LandingBelowSlurm(BelowMinimum { actual: millis(39_999), minimum: millis(40_000) })
    )]
    #[case::lease(
        |timing: &mut Timing, less| timing.lease = millis(19_000 - less),
        TimingError::Lease(BelowMinimum { actual: millis(18_999), minimum: millis(19_000) })
    )]
    #[case::grace(
        |timing: &mut Timing, less| {
            timing.lease = millis(28_800);
            timing.grace = millis(31_200 - less);
        },
        TimingError::Grace(BelowMinimum { actual: millis(31_199), minimum: Duration::from_micros(31_199_980) })
    )]
    #[case::dead_after(
        |timing: &mut Timing, less| timing.dead_after = millis(6_000 - less),
        TimingError::DeadAfter(BelowMinimum { actual: millis(5_999), minimum: millis(6_000) })
    )]
    fn constant_below_its_minimum_is_refused(#[case] set: fn(&mut Timing, u64), #[case] error: TimingError) {
        let mut timing = Timing::default();
        set(&mut timing, 0);
        assert_eq!(timing.check(), Ok(()));
        set(&mut timing, 1);
        assert_eq!(timing.check(), Err(error));
    }

    #[test]
    fn clock_rate_difference_below_ntp_slew_is_refused() {
        let mut timing = Timing { rho_ppm: 500, ..Timing::default() };
        assert_eq!(timing.check(), Ok(()));
        timing.rho_ppm = 499;
        assert_eq!(timing.check(), Err(TimingError::Rho(BelowMinimum { actual: 499, minimum: 500 })));
    }

    #[rstest]
    #[case::lease(Timing { lease: Duration::MAX, ..Timing::default() })]
    #[case::landing(Timing { landing: Duration::MAX, ..Timing::default() })]
    #[case::drift(Timing { rho_ppm: u32::MAX, ..Timing::default() })]
    #[case::message_timeout(Timing { message_timeout: Duration::MAX, ..Timing::default() })]
    fn overflowing_constants_are_refused_without_a_panic(#[case] timing: Timing) {
        assert!(timing.check().is_err());
    }
}
