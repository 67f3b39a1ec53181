//! Whether a worker may be on a Kubernetes node, by the rules that Kubernetes has for it.

mod affinity;
mod taints;

pub use affinity::unreadable_requirement;

use crate::node_facts::NodeFacts;
use affinity::{Match, match_node};
use k8s_openapi::api::core::v1::PodSpec;
use taints::{NO_EXECUTE, NO_SCHEDULE, Tolerance, tolerance};

/// What a pod may do on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Come.
    pub run: bool,
    /// Stay, if it is there.
    pub stay: bool,
}

/// Whether a pod that asks for this may come to a node, and stay there.
///
/// Kubernetes itself ends pods whose time on a tainted node is over. Until then they stay, but nobody new comes: it
/// would be gone again soon.
pub fn fit(spec: &PodSpec, node: &NodeFacts) -> Fit {
    let place = match_node(spec, node);
    if place == Match::No {
        return Fit { run: false, stay: false };
    }
    // Whoever is there stays while nobody can say whether it should be.
    let mut fit = Fit { run: place == Match::Yes, stay: true };
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
