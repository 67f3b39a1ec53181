//! The Kubernetes node that each ordinal is pinned to.

use super::fit::fit;
use crate::node_facts::Nodes;
use crate::worker::{Phase, Worker};
use k8s_openapi::api::core::v1::PodSpec;
use slinky_api::v1beta1::{NodeSet, ScalingMode};
use std::collections::{BTreeMap, BTreeSet};

/// Kubernetes nodes by ordinal, as in `status.ordinalToNode`.
pub type Pins = BTreeMap<String, String>;

/// The pins; `None` if pinning is off. An ordinal stays on the node that it ran on while that node exists and fits.
pub fn pins(nodeset: &NodeSet, workers: &[Worker], nodes: &Nodes, spec: Option<&PodSpec>) -> Option<Pins> {
    if !nodeset.spec.pin_to_node || nodeset.spec.scaling_mode != ScalingMode::StatefulSet {
        return None;
    }
    let before =
        nodeset.status.as_ref().and_then(|status| status.ordinal_to_node.clone()).unwrap_or_default();
    let Some(spec) = spec else { return Some(before) };
    let accepts = |name: &str| nodes.get(name).is_some_and(|node| fit(spec, node).run);
    let mut pins: Pins = before.into_iter().filter(|(_, node)| accepts(node)).collect();
    let running = workers.iter().filter(|worker| worker.phase == Phase::Running);
    let bound: Pins = running
        .filter_map(|worker| Some((worker.ordinal?.to_string(), worker.node.clone()?)))
        .filter(|(_, node)| accepts(node))
        .collect();
    let used: BTreeSet<_> = bound.values().collect();
    // An ordinal without running pod does not reserve a node on which another ordinal runs.
    pins.retain(|ordinal, node| {
        bound.contains_key(ordinal) || nodeset.spec.oversubscribe_node || !used.contains(node)
    });
    pins.extend(bound);
    Some(pins)
}
