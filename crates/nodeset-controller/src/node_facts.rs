//! A Kubernetes node reduced to the fields that decisions depend on, without those that change with every heartbeat.

use k8s_openapi::api::core::v1::{Node, Taint};
use slinky_api::labels::annotations::{FEATURES, HOSTNAME_OVERRIDE, NODE_CORDON_REASON, TOPOLOGY};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All Kubernetes nodes, by name.
pub type Nodes = BTreeMap<String, Arc<NodeFacts>>;

/// The annotations of a Kubernetes node that decisions depend on. Other annotations change often: agents renew theirs
/// as heartbeats.
const ANNOTATIONS: [&str; 4] = [FEATURES, HOSTNAME_OVERRIDE, NODE_CORDON_REASON, TOPOLOGY];

/// The part of a Kubernetes node that decisions depend on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, reduced to those that decisions depend on.
    pub annotations: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its conditions, reduced to the types that are copied into drain reasons.
    pub conditions: Vec<NodeCondition>,
}

/// A condition of a Kubernetes node, without its heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its type.
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

impl NodeFacts {
    /// Parses a node. `propagated` are the condition types that are copied into drain reasons.
    pub fn new(node: &Node, propagated: &[String]) -> Self {
        let metadata = &node.metadata;
        let spec = node.spec.as_ref();
        let annotations = metadata.annotations.iter().flatten();
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: annotations
                .filter(|(key, _)| ANNOTATIONS.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            conditions: conditions
                .filter(|condition| propagated.contains(&condition.type_))
                .map(|condition| NodeCondition {
                    type_: condition.type_.clone(),
                    status: condition.status.clone(),
                    reason: condition.reason.clone().unwrap_or_default(),
                    message: condition.message.clone().unwrap_or_default(),
                })
                .collect(),
        }
    }
}

/// The hostname, and Slurm node name, of a DaemonSet-mode worker on this Kubernetes node.
pub fn expected_hostname(node: &NodeFacts) -> String {
    let hostname = node.annotations.get(HOSTNAME_OVERRIDE).filter(|name| !name.is_empty());
    hostname.cloned().unwrap_or_else(|| node.name.split('.').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn facts(node: Value) -> NodeFacts {
        NodeFacts::new(&serde_json::from_value(node).unwrap(), &["DiskPressure".to_owned()])
    }

    #[rstest]
    #[case::first_label("node1.us-west-2.compute.internal", None, "node1")]
    #[case::unqualified("node-1-", None, "node-1-")]
    #[case::overridden("node1.example.com", Some("custom-hostname"), "custom-hostname")]
    #[case::override_is_verbatim("node1", Some("a.b"), "a.b")]
    #[case::empty_override("node1.example.com", Some(""), "node1")]
    fn hostname_is_the_override_or_the_first_label_of_the_node_name(
        #[case] name: &str,
        #[case] hostname: Option<&str>,
        #[case] expected: &str,
    ) {
        let annotations = hostname.map(|hostname| (HOSTNAME_OVERRIDE.to_owned(), hostname.to_owned()));
        let facts = NodeFacts {
            name: name.to_owned(),
            annotations: annotations.into_iter().collect(),
            ..NodeFacts::default()
        };
        assert_eq!(expected_hostname(&facts), expected);
    }

    #[test]
    fn heartbeats_do_not_change_facts() {
        let at = |time: &str| {
            let full = json!({ "type": "DiskPressure", "status": "True", "reason": "Full", "message": "no space",
                "lastHeartbeatTime": time });
            let other = json!({ "type": "NetworkUnavailable", "status": "False", "message": format!("probed {time}") });
            facts(json!({
                "metadata": { "name": "node-a", "annotations": { "agent.example.com/alive": time, TOPOLOGY: "b0" } },
                "status": { "conditions": [other, full] },
            }))
        };
        assert_eq!(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:10Z"));
        let expected = NodeCondition {
            type_: "DiskPressure".to_owned(),
            status: "True".to_owned(),
            reason: "Full".to_owned(),
            message: "no space".to_owned(),
        };
        assert_eq!(at("2026-01-01T00:00:00Z").conditions, [expected]);
        let annotations = BTreeMap::from([(TOPOLOGY.to_owned(), "b0".to_owned())]);
        assert_eq!(at("2026-01-01T00:00:00Z").annotations, annotations);
    }
}
