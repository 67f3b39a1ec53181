//! Drain reasons that the operator sets, and how they are recognized.

use crate::node_facts::NodeFacts;
use slinky_api::labels::annotations::NODE_CORDON_REASON;

/// Prefix of every reason that the operator sets.
const PREFIX: &str = "slurm-operator: ";
/// Maximum length of text copied from a Kubernetes node, in characters.
const MAX_LENGTH: usize = 256;
/// Replaces an empty text.
const UNKNOWN: &str = "unknown";

/// Whether the operator set this reason. An empty reason does not count: others drain without a reason too.
pub fn is_ours(reason: &str) -> bool {
    reason.starts_with(PREFIX)
}

/// For a pod that is about to be removed.
pub fn pending_termination(namespace: &str, pod: &str) -> String {
    with_prefix(&format!("Pod ({namespace}/{pod}) is pending termination for scale-in"))
}

/// For a terminating pod; its preStop hook sets the same reason.
pub fn terminating() -> String {
    with_prefix("Pod is terminating")
}

/// For a pod that was cordoned by annotation.
pub fn pod_cordoned(namespace: &str, pod: &str) -> String {
    with_prefix(&format!("Pod ({namespace}/{pod}) was cordoned"))
}

/// For a pod whose Kubernetes node was cordoned: the node's annotation, else its true conditions of the `propagated`
/// types in that order, else a fixed text.
pub fn node_cordoned(node: &NodeFacts, namespace: &str, pod: &str, propagated: &[String]) -> String {
    if let Some(reason) = node.annotations.get(NODE_CORDON_REASON) {
        return with_prefix(&one_line(reason));
    }
    let conditions = propagated
        .iter()
        .flat_map(|type_| node.conditions.iter().filter(move |condition| condition.type_ == *type_))
        .filter(|condition| condition.status == "True");
    let problems: Vec<_> =
        conditions.map(|condition| format!("({}: {})", condition.reason, condition.message)).collect();
    if problems.is_empty() {
        return with_prefix(&format!(
            "Node ({}) was cordoned, Pod ({namespace}/{pod}) must be cordoned",
            node.name
        ));
    }
    with_prefix(&one_line(&problems.join("; ")))
}

fn with_prefix(reason: &str) -> String {
    let reason = if reason.is_empty() { UNKNOWN } else { reason };
    format!("{PREFIX}{reason}")
}

/// Free text as Slurm can show it: one line, no control characters, limited length.
fn one_line(text: &str) -> String {
    let spaced = text.chars().map(|character| if "\t\n\r".contains(character) { ' ' } else { character });
    let visible: String = spaced.filter(|character| !character.is_control()).collect();
    visible.trim().chars().take(MAX_LENGTH).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests;
