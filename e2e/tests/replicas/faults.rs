//! The faults, and how often each was injected.

use rand::{Rng, RngExt};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// Number of replicas.
pub const REPLICAS: usize = 3;
/// Number of processes of the expectations service.
pub const SERVICES: usize = 2;

/// A fault of one process.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// SIGKILL; the process is started again after a while.
    KillReplica(usize, Duration),
    /// SIGSTOP, and SIGCONT after a while.
    PauseReplica(usize, Duration),
    /// The replica's connections to all processes of the service end, and none is accepted for a while.
    CutReplica(usize, Duration),
    /// SIGKILL; the process is started again after a while.
    KillService(usize, Duration),
    /// SIGSTOP, and SIGCONT after a while.
    PauseService(usize, Duration),
}

impl Fault {
    pub fn random(random: &mut impl Rng) -> Self {
        let (replica, service) = (random.random_range(0..REPLICAS), random.random_range(0..SERVICES));
        let mut up_to = |seconds: u64| Duration::from_millis(random.random_range(0..seconds * 1000));
        // Beyond the lease of a batch, the death of a replica and the term of a leader.
        let (restart, pause, cut) = (up_to(4), up_to(40), up_to(15));
        match random.random_range(0..5) {
            0 => Self::KillReplica(replica, restart),
            1 => Self::PauseReplica(replica, pause),
            2 => Self::CutReplica(replica, cut),
            3 => Self::KillService(service, restart),
            _ => Self::PauseService(service, pause),
        }
    }
}

/// Numbers of injected faults.
#[derive(Debug, Default)]
pub struct Faults {
    kills: u32,
    pauses: u32,
    cuts: u32,
}

impl Faults {
    pub fn count(&mut self, fault: Fault) {
        match fault {
            Fault::KillReplica(..) | Fault::KillService(..) => self.kills += 1,
            Fault::PauseReplica(..) | Fault::PauseService(..) => self.pauses += 1,
            Fault::CutReplica(..) => self.cuts += 1,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
    }
}

impl Display for Faults {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { kills, pauses, cuts } = self;
        write!(
            formatter,
            "{} faults ({kills} killed, {pauses} paused, {cuts} cut off)",
            kills + pauses + cuts
        )
    }
}
