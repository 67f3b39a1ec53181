//! The constants that keep batches apart in time, and what must hold between them.
//!
//! The last write of a batch is sent at `lease - write_limit` at the latest and lands `landing` after that at the latest,
//! on the holder's clock from the first sending of its request. The next batch is granted at [`hold`](Timing::hold)
//! at the earliest, on the service's clock from the later granting. The grace makes up for the difference.

use std::time::Duration;

/// Time for the holder to send in, after its request had to be repeated once.
const TIME_TO_SEND: Duration = Duration::from_secs(5);
/// What NTP may do to a clock's rate.
const CLOCK_SLEW_PPM: u32 = 500;
/// How many of Slurm's message timeouts a write to it may take to land.
const MESSAGES_TO_LAND: u32 = 4;
/// Heartbeats that may be lost.
const HEARTBEATS_TO_LIVE: u32 = 3;

/// The constants that the service and its replicas have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// Time limit of one write, from connecting to the answer.
    pub write_limit: Duration,
    /// Longest time from the decision to send a write to its landing, whether or not its sender still waits.
    pub landing: Duration,
    /// Difference of the rates of two clocks, in parts per million.
    pub rho_ppm: u32,
    /// Time limit of one call of the service.
    pub rpc_limit: Duration,
    /// How long a batch may send, from the first sending of its request.
    pub lease: Duration,
    /// How long after its lease a batch without an end still blocks the next one.
    pub grace: Duration,
    /// Slurm's `MessageTimeout`.
    pub message_timeout: Duration,
    /// How often a replica says that it lives.
    pub heartbeat: Duration,
    /// How long after its last heartbeat a replica counts as live.
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
    /// How long after its granting a batch without an end keeps others than creates waiting.
    pub fn hold(&self) -> Duration {
        self.lease.saturating_add(self.grace)
    }

    /// Refuses constants under which batches could meet.
    pub fn check(&self) -> Result<(), TimingError> {
        let landing_in_slurm = self.message_timeout.saturating_mul(MESSAGES_TO_LAND);
        let heartbeats = self.heartbeat.saturating_mul(HEARTBEATS_TO_LIVE);
        at_least(self.write_limit, self.message_timeout, TimingError::WriteLimit)?;
        at_least(self.landing, self.write_limit, TimingError::LandingOfAWrite)?;
        at_least(self.landing, landing_in_slurm, TimingError::LandingInSlurm)?;
        at_least(self.rho_ppm, CLOCK_SLEW_PPM, TimingError::Rho)?;
        at_least(self.lease, self.least_lease(), TimingError::Lease)?;
        at_least(self.grace, self.least_grace(), TimingError::Grace)?;
        at_least(self.dead_after, heartbeats, TimingError::DeadAfter)
    }

    fn least_lease(&self) -> Duration {
        self.write_limit.saturating_add(self.rpc_limit.saturating_mul(2)).saturating_add(TIME_TO_SEND)
    }

    fn least_grace(&self) -> Duration {
        let drift = self.hold().saturating_mul(self.rho_ppm.saturating_mul(2)) / 1_000_000;
        self.landing.saturating_sub(self.write_limit).saturating_add(drift)
    }
}

fn at_least<T: PartialOrd>(
    actual: T,
    least: T,
    error: fn(Below<T>) -> TimingError,
) -> Result<(), TimingError> {
    if actual < least { Err(error(Below { actual, least })) } else { Ok(()) }
}

/// A constant that is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Below<T> {
    /// As set.
    pub actual: T,
    /// As it has to be.
    pub least: T,
}

/// Which constant is too small, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// A write would be given up while Slurm may still answer.
    #[error("the time limit of a write is {:?}, below Slurm's MessageTimeout of {:?}", .0.actual, .0.least)]
    WriteLimit(Below<Duration>),
    /// A write could be answered after it was thought to have landed.
    #[error("the landing time of a write is {:?}, below its time limit of {:?}", .0.actual, .0.least)]
    LandingOfAWrite(Below<Duration>),
    /// Slurm could carry out a write after it was thought to have landed.
    #[error("the landing time of a write is {:?}, below {:?}: four times Slurm's MessageTimeout", .0.actual, .0.least)]
    LandingInSlurm(Below<Duration>),
    /// Clocks differ by more.
    #[error("the difference of clock rates is {} ppm, below the {} ppm of NTP", .0.actual, .0.least)]
    Rho(Below<u32>),
    /// No time to send is left after one repeated request.
    #[error("the lease is {:?}, below {:?}: one write, two calls and 5 s to send in", .0.actual, .0.least)]
    Lease(Below<Duration>),
    /// A late write of one batch could meet the next batch.
    #[error("the grace is {:?}, below {:?}: the landing of the last write and the drift of clocks", .0.actual, .0.least)]
    Grace(Below<Duration>),
    /// A lost heartbeat would end a membership.
    #[error("a replica is dead after {:?}, below {:?}: three heartbeats", .0.actual, .0.least)]
    DeadAfter(Below<Duration>),
}

#[cfg(test)]
mod tests {
    use super::{Below, Timing, TimingError};
    use rstest::rstest;
    use std::time::Duration;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_defaults_hold() {
        assert_eq!(Timing::default().check(), Ok(()));
        assert_eq!(Timing::default().hold(), millis(60_000));
    }

    /// Each line of the table at its limit, and just below.
    #[rstest]
    #[case::write_limit(
        |timing: &mut Timing, less| timing.write_limit = millis(10_000 - less),
        TimingError::WriteLimit(Below { actual: millis(9_999), least: millis(10_000) })
    )]
    #[case::landing_of_a_write(
        |timing: &mut Timing, less| {
            timing.write_limit = millis(40_000);
            timing.landing = millis(40_000 - less);
            timing.lease = millis(60_000);
        },
        TimingError::LandingOfAWrite(Below { actual: millis(39_999), least: millis(40_000) })
    )]
    #[case::landing_in_slurm(
        |timing: &mut Timing, less| timing.landing = millis(40_000 - less),
        TimingError::LandingInSlurm(Below { actual: millis(39_999), least: millis(40_000) })
    )]
    #[case::lease(
        |timing: &mut Timing, less| timing.lease = millis(19_000 - less),
        TimingError::Lease(Below { actual: millis(18_999), least: millis(19_000) })
    )]
    #[case::grace(
        |timing: &mut Timing, less| {
            timing.lease = millis(28_800);
            timing.grace = millis(31_200 - less);
        },
        TimingError::Grace(Below { actual: millis(31_199), least: Duration::from_micros(31_199_980) })
    )]
    #[case::dead_after(
        |timing: &mut Timing, less| timing.dead_after = millis(6_000 - less),
        TimingError::DeadAfter(Below { actual: millis(5_999), least: millis(6_000) })
    )]
    fn a_constant_just_below_its_limit_is_refused(
        #[case] set: fn(&mut Timing, u64),
        #[case] error: TimingError,
    ) {
        let mut timing = Timing::default();
        set(&mut timing, 0);
        assert_eq!(timing.check(), Ok(()));
        set(&mut timing, 1);
        assert_eq!(timing.check(), Err(error));
    }

    #[test]
    fn clocks_are_not_thought_to_be_better_than_ntp_makes_them() {
        let mut timing = Timing { rho_ppm: 500, ..Timing::default() };
        assert_eq!(timing.check(), Ok(()));
        timing.rho_ppm = 499;
        assert_eq!(timing.check(), Err(TimingError::Rho(Below { actual: 499, least: 500 })));
    }

    #[rstest]
    #[case::lease(Timing { lease: Duration::MAX, ..Timing::default() })]
    #[case::landing(Timing { landing: Duration::MAX, ..Timing::default() })]
    #[case::drift(Timing { rho_ppm: u32::MAX, ..Timing::default() })]
    #[case::message_timeout(Timing { message_timeout: Duration::MAX, ..Timing::default() })]
    fn absurd_constants_are_refused_without_a_panic(#[case] timing: Timing) {
        assert!(timing.check().is_err());
    }
}
