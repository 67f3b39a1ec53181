//! Keeps two replicas from overwriting each other's status.
//!
//! A status is also input: reservations, the Kubernetes nodes of ordinals and held partitions are read from it. A replica
//! that has joined the expectations service owns what it works on. One that has not may have lost it to another replica, so
//! it goes on writing only while the status is one that it wrote itself, or saw when it had joined.

use serde_json::Value;
use slinky_api::v1beta1::{NodeSet, NodeSetStatus};
use std::sync::Arc;

/// The last status of one NodeSet that is known to be of this replica.
#[derive(Clone, Debug, Default)]
pub enum StatusFence {
    /// There is none.
    #[default]
    Unknown,
    /// It was seen when this replica had joined.
    Seen(Arc<NodeSet>),
    /// This replica wrote it. As JSON, which is less precise than the status itself: in fractions of seconds.
    Written(Value),
}

impl StatusFence {
    /// Whether the status of a NodeSet may be replaced.
    pub fn may_write(&mut self, nodeset: &Arc<NodeSet>, is_joined: bool) -> bool {
        if is_joined {
            *self = Self::Seen(nodeset.clone());
            return true;
        }
        let current = nodeset.status.as_ref();
        match self {
            Self::Unknown => false,
            Self::Seen(seen) => seen.status.as_ref() == current,
            Self::Written(written) => current.is_some_and(|current| *written == json(current)),
        }
    }

    /// This replica wrote the status.
    pub fn written(&mut self, status: &NodeSetStatus) {
        *self = Self::Written(json(status));
    }
}

fn json(status: &NodeSetStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::StatusFence;
    use crate::fixture;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use serde_json::json;
    use slinky_api::v1beta1::{NodeSet, NodeSetStatus};
    use std::sync::Arc;

    fn status(replicas: i32) -> NodeSetStatus {
        NodeSetStatus { replicas, ..NodeSetStatus::default() }
    }

    fn nodeset(status: Option<NodeSetStatus>) -> Arc<NodeSet> {
        Arc::new(NodeSet { status, ..fixture::nodeset(&json!({})) })
    }

    #[test]
    fn joined_replica_writes_over_any_status() {
        let mut fence = StatusFence::default();
        assert!(fence.may_write(&nodeset(None), true));
        assert!(fence.may_write(&nodeset(Some(status(1))), true));
    }

    #[test]
    fn replica_that_has_not_joined_writes_over_its_own_status_only() {
        let mut fence = StatusFence::default();
        assert!(!fence.may_write(&nodeset(Some(status(1))), false), "it never had joined");
        assert!(fence.may_write(&nodeset(Some(status(1))), true));
        assert!(fence.may_write(&nodeset(Some(status(1))), false), "it saw this status when it had joined");
        assert!(!fence.may_write(&nodeset(Some(status(2))), false), "another replica wrote");
        fence.written(&status(2));
        assert!(fence.may_write(&nodeset(Some(status(2))), false));
        assert!(!fence.may_write(&nodeset(Some(status(3))), false), "another replica wrote");
        assert!(!fence.may_write(&nodeset(None), false));
    }

    #[test]
    fn status_that_was_written_is_recognized_when_it_is_read() {
        let condition = Condition {
            last_transition_time: Time("2027-01-15T08:00:00.123456789Z".parse().unwrap()),
            message: String::new(),
            observed_generation: None,
            reason: "Ready".to_owned(),
            status: "True".to_owned(),
            type_: "Ready".to_owned(),
        };
        let written = NodeSetStatus { conditions: vec![condition], ..status(1) };
        let read = serde_json::from_value(serde_json::to_value(&written).unwrap()).unwrap();
        let mut fence = StatusFence::default();
        fence.written(&written);
        assert!(fence.may_write(&nodeset(Some(read)), false));
    }
}
