//! Discrete time. All clocks show the same tick, and steps within a tick happen in any order.
//!
//! A write that lands in the same tick in which the next batch is granted may land after the grant. So the grace has one
//! tick more than the landing of a write requires; in reality it has the drift of the clocks.

use crate::guard::{Guard, Guards};
use expectations::Timing;
use std::time::Duration;

/// Number of ticks since the start.
pub type Tick = u8;

const TICK: Duration = Duration::from_secs(10);
/// How long after its last renewal a leader still answers.
pub const TERM: Tick = 1;

/// The time that is passed to the shipped code.
pub fn at(tick: Tick) -> Duration {
    TICK * u32::from(tick)
}

/// The constants of the protocol in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A write takes half a tick; lease, landing and grace are one tick each.
    Coarse,
    /// A write takes one tick; lease, landing and grace are two ticks each.
    Fine,
}

impl Scale {
    /// The constants as the shipped code takes them. With all guards, they pass the check of the binaries.
    pub(crate) fn timing(self, guards: Guards) -> Timing {
        let (write_limit, rpc_limit) = match self {
            Self::Coarse => (TICK / 2, Duration::ZERO),
            Self::Fine => (TICK, Duration::from_secs(2)),
        };
        let span = at(self.landing());
        Timing {
            write_limit,
            landing: span,
            rho_ppm: 10_000,
            rpc_limit,
            lease: span,
            grace: if guards.has(Guard::Grace) { span } else { Duration::ZERO },
            message_timeout: write_limit / 2,
            heartbeat: Duration::from_secs(2),
            // Replicas join once and stay: any replica may request batches at any time.
            dead_after: Duration::from_hours(24),
        }
    }

    /// How long after its check a write may land.
    pub(crate) fn landing(self) -> Tick {
        match self {
            Self::Coarse => 1,
            Self::Fine => 2,
        }
    }

    /// How long a batch without `Done` blocks batches that do more than create.
    pub(crate) fn hold(self) -> Tick {
        2 * self.landing()
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, at};
    use crate::guard::{Guard, Guards};
    use rstest::rstest;

    #[rstest]
    fn binaries_accept_the_timing(#[values(Scale::Coarse, Scale::Fine)] scale: Scale) {
        let timing = scale.timing(Guards::default());
        assert_eq!(timing.check(), Ok(()));
        assert_eq!(timing.hold(), at(scale.hold()));
    }

    #[rstest]
    fn binaries_refuse_the_timing_without_grace(#[values(Scale::Coarse, Scale::Fine)] scale: Scale) {
        assert!(scale.timing(Guards::without(Guard::Grace)).check().is_err());
    }
}
