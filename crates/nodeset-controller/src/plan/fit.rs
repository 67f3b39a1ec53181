//! Whether a worker fits on a Kubernetes node, by the rules of the Kubernetes scheduler and taint manager.

mod affinity;
mod taints;

pub use affinity::invalid_requirement;

use crate::node_facts::NodeFacts;
use affinity::{Match, match_node};
use k8s_openapi::api::core::v1::PodSpec;
use taints::{NO_EXECUTE, NO_SCHEDULE, Tolerance, tolerance};

/// Whether a pod fits on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// A new pod may run there.
    pub run: bool,
    /// A pod that is there may stay.
    pub stay: bool,
}

/// Whether a pod with this spec may run on a node, and stay there.
///
/// Kubernetes evicts pods from a tainted node when their tolerationSeconds are over. Until then they stay, but no new
/// pod is created there: it would be evicted soon.
pub fn fit(spec: &PodSpec, node: &NodeFacts) -> Fit {
    let matched = match_node(spec, node);
    if matched == Match::No {
        return Fit { run: false, stay: false };
    }
    // With an invalid requirement, existing pods stay and no new one is created.
    let mut fit = Fit { run: matched == Match::Yes, stay: true };
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    for taint in node.taints.iter().filter(|taint| [NO_SCHEDULE, NO_EXECUTE].contains(&taint.effect.as_str()))
    {
        let tolerance = tolerance(taint, tolerations);
        fit.run &= tolerance == Tolerance::Forever;
        fit.stay &= tolerance != Tolerance::None || taint.effect != NO_EXECUTE;
    }
    fit
}

#[cfg(test)]
mod tests;
