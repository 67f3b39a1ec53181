//! The time for which the expectations service asked a NodeSet to wait. Until it is over, no batch is requested that
//! would be answered in the same way. Pure.

use crate::execute::PlannedWrites;
use crate::plan::Effect;
use expectations::{Wait, WaitReason};
use std::time::Duration;
use tokio::time::Instant;

/// A wait that the service asked for.
#[derive(Clone, Copy, Debug)]
pub struct ServiceWait {
    /// Why.
    pub reason: WaitReason,
    until: Instant,
}

impl ServiceWait {
    /// The wait of an answer that arrived now.
    pub fn new(wait: Wait, now: Instant) -> Self {
        Self { reason: wait.reason, until: now + wait.after }
    }

    /// The time that is left; `None` if it is over.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        Some(self.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Removes the effects for which a batch would not be granted now; returns for how long. In half-open time creates are
    /// granted.
    pub fn hold_back(&self, writes: &mut PlannedWrites, now: Instant) -> Option<Duration> {
        let left = self.left(now)?;
        let planned = writes.effects.len();
        match self.reason {
            WaitReason::HalfOpen => writes.effects.retain(Effect::only_creates),
            WaitReason::OpenBatch | WaitReason::Budget | WaitReason::Stopping => writes.effects.clear(),
        }
        (writes.effects.len() < planned).then_some(left)
    }
}
