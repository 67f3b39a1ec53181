//! For how long a pod tolerates a taint.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// New pods are not scheduled.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// New pods are not scheduled, and running pods are evicted.
pub const NO_EXECUTE: &str = "NoExecute";

/// Taints of a node whose kubelet reports problems, or does not report. Kubernetes adds tolerations with a time limit
/// to every pod, and evicts the pods when it is over.
const NODE_PROBLEMS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// For how long a taint is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tolerance {
    /// Not at all.
    None,
    /// For a limited time that Kubernetes tracks.
    ForAWhile,
    /// As long as it lasts.
    Forever,
}

/// For how long a taint is tolerated.
pub fn tolerance(taint: &Taint, tolerations: &[Toleration]) -> Tolerance {
    let tolerated = tolerations.iter().filter(|toleration| covers(toleration, taint)).map(|toleration| {
        if toleration.toleration_seconds.is_some() { Tolerance::ForAWhile } else { Tolerance::Forever }
    });
    let is_node_problem = taint.effect == NO_EXECUTE && NODE_PROBLEMS.contains(&taint.key.as_str());
    let default = if is_node_problem { Tolerance::ForAWhile } else { Tolerance::None };
    tolerated.fold(default, Tolerance::max)
}

/// Whether a toleration matches this taint. One that Kubernetes would reject matches none.
fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let matches_effect = effect.is_empty() || effect == taint.effect;
    matches_effect
        && match toleration.operator.as_deref().unwrap_or_default() {
            "Exists" => key.is_empty() || key == taint.key,
            "" | "Equal" => {
                key == taint.key
                    && toleration.value.as_deref().unwrap_or_default()
                        == taint.value.as_deref().unwrap_or_default()
            }
            _ => false,
        }
}
