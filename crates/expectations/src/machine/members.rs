//! Which replicas are live. Safety does not depend on it: it only distributes the clusters.

use crate::messages::{Heartbeat, ReplicaId};
use std::collections::BTreeMap;
use std::time::Duration;

/// A larger gap between ticks means that the service itself was paused.
const MAX_TICK_GAP: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Members {
    version: u64,
    /// When each live replica becomes dead without another heartbeat.
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
        // The set changes when a live replica leaves and when a replica that was not live joins.
        if was_live == *leaving {
            self.version += 1;
        }
    }

    /// Removes dead replicas. The service receives no heartbeats while it is paused, so a pause extends all deadlines.
    pub fn tick(&mut self, now: Duration, dead_after: Duration) {
        let gap = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if gap > MAX_TICK_GAP {
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
