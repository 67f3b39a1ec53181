//! How long a NodeSet that cannot begin is told to wait. The times of NodeSets differ, by a hash of their names, so that
//! those that were sent away together do not come back together.

use crate::messages::{NodeSetName, Wait, WaitReason};
use crate::stable_hash::stable_hash;
use std::time::Duration;

/// The answer that sends a NodeSet away; `rest` is what is left of its half-open time.
pub fn wait(nodeset: &NodeSetName, reason: WaitReason, rest: Duration) -> Wait {
    let (least, spread) = match reason {
        WaitReason::OpenBatch => (Duration::from_millis(500), Duration::from_millis(500)),
        WaitReason::HalfOpen => (rest, Duration::from_secs(5)),
        WaitReason::Budget | WaitReason::Stopping => (Duration::from_secs(1), Duration::from_secs(1)),
    };
    Wait { after: least.saturating_add(part_of(spread, nodeset)), reason }
}

/// A part of a time, always the same for a NodeSet.
fn part_of(whole: Duration, nodeset: &NodeSetName) -> Duration {
    let [high, low, ..] = stable_hash([&nodeset.namespace, &nodeset.name]).to_be_bytes();
    whole * u32::from(u16::from_be_bytes([high, low])) / u32::from(u16::MAX)
}
