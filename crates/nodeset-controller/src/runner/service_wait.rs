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

#[cfg(test)]
mod tests {
    use super::ServiceWait;
    use crate::fixture;
    use crate::plan::{Effect, NewPod};
    use crate::runner::PlannedWrites;
    use expectations::{Wait, WaitReason};
    use rstest::rstest;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::Instant;

    const AFTER: Duration = Duration::from_secs(40);

    /// A create and another effect.
    fn writes() -> PlannedWrites {
        let (name, pod) = ("gpu-0".to_owned(), Value::Null);
        let create = Effect::CreatePod(Box::new(NewPod { name, pod, names_its_node: true, claims: vec![] }));
        PlannedWrites {
            nodeset: Arc::new(fixture::nodeset(&json!({}))),
            effects: vec![create, Effect::DeleteReservation("maint".to_owned())],
            node_mirrors: vec![],
            basis: None,
        }
    }

    #[rstest]
    #[case::half_open(WaitReason::HalfOpen, 1)]
    #[case::open_batch(WaitReason::OpenBatch, 0)]
    #[case::budget(WaitReason::Budget, 0)]
    #[case::stopping(WaitReason::Stopping, 0)]
    fn only_what_may_be_granted_is_requested(#[case] reason: WaitReason, #[case] requested: usize) {
        let now = Instant::now();
        let wait = ServiceWait::new(Wait { after: AFTER, reason }, now);
        let (mut during, mut after) = (writes(), writes());
        let (elapsed, left) = (Duration::from_secs(1), Duration::from_secs(39));
        assert_eq!(wait.hold_back(&mut during, now + elapsed), Some(left));
        assert_eq!(during.effects.len(), requested);
        assert_eq!(wait.hold_back(&mut after, now + AFTER), None);
        assert_eq!(after.effects.len(), 2);
    }

    #[test]
    fn creates_alone_are_not_delayed_in_half_open_time() {
        let now = Instant::now();
        let wait = ServiceWait::new(Wait { after: AFTER, reason: WaitReason::HalfOpen }, now);
        let mut creates = writes();
        creates.effects.truncate(1);
        assert_eq!(wait.hold_back(&mut creates, now), None);
        assert_eq!(creates.effects.len(), 1);
    }
}
