//! The delay in a `Wait` answer. It is spread by a hash of the NodeSet's name, so that NodeSets that were answered
//! together do not retry together.

use crate::messages::{NodeSetName, Wait, WaitReason};
use crate::stable_hash::stable_hash;
use std::time::Duration;

/// The answer to a NodeSet whose half-open time ends in `half_open_left`.
pub fn build_wait(nodeset: &NodeSetName, reason: WaitReason, half_open_left: Duration) -> Wait {
    let (minimum, spread) = match reason {
        WaitReason::OpenBatch => (Duration::from_millis(500), Duration::from_millis(500)),
        WaitReason::HalfOpen => (half_open_left, Duration::from_secs(5)),
        WaitReason::Budget | WaitReason::Stopping => (Duration::from_secs(1), Duration::from_secs(1)),
    };
    Wait { after: minimum.saturating_add(stable_jitter(nodeset, spread)), reason }
}

/// A duration of at most `spread`, always the same for a NodeSet.
fn stable_jitter(nodeset: &NodeSetName, spread: Duration) -> Duration {
    let [high, low, ..] = stable_hash([&nodeset.namespace, &nodeset.name]).to_be_bytes();
    spread * u32::from(u16::from_be_bytes([high, low])) / u32::from(u16::MAX)
}
