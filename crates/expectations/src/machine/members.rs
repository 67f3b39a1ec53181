//! Which replicas are live. Safety does not depend on it: it only says who works on what.

use crate::messages::{Heartbeat, ReplicaId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Ticks that are further apart show that the service itself stood still.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Members {
    version: u64,
    /// When each live replica counts as dead.
    deadlines: BTreeMap<ReplicaId, Duration>,
    last_tick: Duration,
}

impl Members {
    pub fn new(now: Duration) -> Self {
        Self { version: 0, deadlines: BTreeMap::new(), last_tick: now }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn live(&self) -> impl Iterator<Item = &ReplicaId> {
        self.deadlines.keys()
    }

    pub fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Duration, dead_after: Duration) {
        let Heartbeat { replica, leaving } = heartbeat;
        let was_live = if *leaving {
            self.deadlines.remove(replica).is_some()
        } else {
            self.deadlines.insert(replica.clone(), now.saturating_add(dead_after)).is_some()
        };
        // A live replica that leaves is a change, as is one that was not live and stays.
        if was_live == *leaving {
            self.version += 1;
        }
    }

    /// Drops the dead. Heartbeats that came while the service stood still were not heard, so a pause kills nobody.
    pub fn tick(&mut self, now: Duration, dead_after: Duration) {
        let gap = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if gap > PAUSE {
            let latest = now.saturating_add(dead_after);
            for deadline in self.deadlines.values_mut() {
                *deadline = deadline.saturating_add(gap).min(latest);
            }
        }
        let before = self.deadlines.len();
        self.deadlines.retain(|_, deadline| now < *deadline);
        if self.deadlines.len() != before {
            self.version += 1;
        }
    }
}
