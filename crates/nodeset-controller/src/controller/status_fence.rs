//! Keeps two replicas from overwriting each other's status.
//!
//! A status is also input: reservations, the Kubernetes nodes of ordinals and held partitions are read from it. A replica
//! that has joined the expectations service owns what it works on. One that has not may have lost it to another replica, so
//! it goes on writing only while the status is one that it wrote itself, or saw when it had joined.

use serde::Serialize;
use slinky_api::v1beta1::NodeSetStatus;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The hash of the status of one NodeSet that is known to be of this replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusFence(Option<u64>);

impl StatusFence {
    /// Whether the status may be replaced.
    pub fn may_write(&mut self, current: Option<&NodeSetStatus>, is_joined: bool) -> bool {
        let current = hash(&current);
        if is_joined {
            self.0 = Some(current);
        }
        self.0 == Some(current)
    }

    /// This replica wrote the status.
    pub fn written(&mut self, status: &NodeSetStatus) {
        self.0 = Some(hash(&Some(status)));
    }
}

fn hash(status: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(status).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::StatusFence;
    use slinky_api::v1beta1::NodeSetStatus;

    fn status(replicas: i32) -> NodeSetStatus {
        NodeSetStatus { replicas, ..NodeSetStatus::default() }
    }

    #[test]
    fn joined_replica_writes_over_any_status() {
        let mut fence = StatusFence::default();
        assert!(fence.may_write(None, true));
        assert!(fence.may_write(Some(&status(1)), true));
    }

    #[test]
    fn replica_that_has_not_joined_writes_over_its_own_status_only() {
        let mut fence = StatusFence::default();
        assert!(!fence.may_write(Some(&status(1)), false), "it never had joined");
        assert!(fence.may_write(Some(&status(1)), true));
        assert!(fence.may_write(Some(&status(1)), false), "it saw this status when it had joined");
        fence.written(&status(2));
        assert!(fence.may_write(Some(&status(2)), false));
        assert!(!fence.may_write(Some(&status(3)), false), "another replica wrote");
        assert!(!fence.may_write(None, false));
    }
}
