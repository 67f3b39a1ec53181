//! What Slurm is told when the operator drains a node, and how such words are known again.

use crate::node_facts::NodeFacts;
use slinky_api::labels::annotations::NODE_CORDON_REASON;

/// What every reason of ours begins with.
const PREFIX: &str = "slurm-operator: ";
/// The longest text that is taken from a Kubernetes node, in characters.
const LONGEST: usize = 256;
/// Said where there is nothing to say.
const UNKNOWN: &str = "unknown";

/// Whether the operator gave this reason. No reason at all may be anybody's.
pub fn is_ours(reason: &str) -> bool {
    reason.starts_with(PREFIX)
}

/// For a pod that has to go.
pub fn pending_termination(namespace: &str, pod: &str) -> String {
    ours(&format!("Pod ({namespace}/{pod}) is pending termination for scale-in"))
}

/// For a pod that is on its way out; its own last words are the same.
pub fn terminating() -> String {
    ours("Pod is terminating")
}

/// For a pod that was cordoned by annotation.
pub fn pod_cordoned(namespace: &str, pod: &str) -> String {
    ours(&format!("Pod ({namespace}/{pod}) was cordoned"))
}

/// For a pod whose Kubernetes node was cordoned: what the node's annotation says, else what is wrong with the node as
/// conditions of the `propagated` types tell, in the order of these, else just that.
pub fn node_cordoned(node: &NodeFacts, namespace: &str, pod: &str, propagated: &[String]) -> String {
    if let Some(reason) = node.annotations.get(NODE_CORDON_REASON) {
        return ours(&one_line(reason));
    }
    let conditions = propagated
        .iter()
        .flat_map(|type_| node.conditions.iter().filter(move |condition| condition.type_ == *type_))
        .filter(|condition| condition.status == "True");
    let troubles: Vec<_> =
        conditions.map(|condition| format!("({}: {})", condition.reason, condition.message)).collect();
    if troubles.is_empty() {
        return ours(&format!("Node ({}) was cordoned, Pod ({namespace}/{pod}) must be cordoned", node.name));
    }
    ours(&one_line(&troubles.join("; ")))
}

fn ours(reason: &str) -> String {
    let reason = if reason.is_empty() { UNKNOWN } else { reason };
    format!("{PREFIX}{reason}")
}

/// Anybody's text as Slurm can show it: one line, no control characters, not too long.
fn one_line(text: &str) -> String {
    let spaced = text.chars().map(|character| if "\t\n\r".contains(character) { ' ' } else { character });
    let visible: String = spaced.filter(|character| !character.is_control()).collect();
    visible.trim().chars().take(LONGEST).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests;
