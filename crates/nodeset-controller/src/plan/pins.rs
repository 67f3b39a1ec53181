//! Which Kubernetes node each numbered worker keeps to.

use super::fit::fit;
use crate::node_facts::Nodes;
use crate::worker::{Phase, Worker};
use k8s_openapi::api::core::v1::PodSpec;
use slinky_api::v1beta1::{NodeSet, ScalingMode};
use std::collections::{BTreeMap, BTreeSet};

/// Kubernetes nodes by number, in the form that the status shows.
pub type Pins = BTreeMap<String, String>;

/// The pins, `None` if nobody wants them. What ran somewhere stays there as long as that node exists and fits.
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
    let placed: Pins = running
        .filter_map(|worker| Some((worker.ordinal?.to_string(), worker.node.clone()?)))
        .filter(|(_, node)| accepts(node))
        .collect();
    let used: BTreeSet<_> = placed.values().collect();
    // A number that is not needed, or not there, does not keep a node from the one that runs on it.
    pins.retain(|ordinal, node| {
        placed.contains_key(ordinal) || nodeset.spec.oversubscribe_node || !used.contains(node)
    });
    pins.extend(placed);
    Some(pins)
}
