//! Which pods are this NodeSet's: by controller, or by labels and name for those that nobody controls.

use super::Effect;
use crate::worker::{Worker, ordinal_of};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use slinky_api::labels::selector_labels;
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::{NodeSet, ScalingMode};
use std::sync::Arc;

/// The workers of a NodeSet, and what makes them so.
pub struct Membership {
    /// Its workers in the order of their names, those included that are about to be adopted.
    pub workers: Vec<Worker>,
    /// Pods to adopt or to disown.
    pub effects: Vec<Effect>,
}

/// Sorts out whose the pods are.
pub fn membership(nodeset: &NodeSet, pods: &[Arc<Pod>]) -> Membership {
    let mut workers = vec![];
    let mut effects = vec![];
    let mut pods: Vec<_> = pods.iter().collect();
    pods.sort_by_key(|pod| pod.name_any());
    for pod in pods {
        let worker = Worker::new(pod.clone());
        match (control_of(&pod.metadata, nodeset), has_our_labels(nodeset, pod)) {
            (Control::Ours, true) => workers.push(worker),
            (Control::Ours, false) => effects.push(Effect::Disown(worker.reference())),
            (Control::Orphan, true) if !worker.terminating && has_our_name(nodeset, pod) => {
                // A NodeSet that is being deleted takes nobody in.
                if nodeset.metadata.deletion_timestamp.is_none() {
                    effects.push(Effect::Adopt(worker.reference()));
                    workers.push(worker);
                }
            }
            (Control::Orphan | Control::Foreign(_), _) => {}
        }
    }
    Membership { workers, effects }
}

fn has_our_labels(nodeset: &NodeSet, pod: &Pod) -> bool {
    selector_labels(nodeset).iter().all(|(key, value)| pod.labels().get(key) == Some(value))
}

/// Whether an orphan is named as a pod of this NodeSet would be.
fn has_our_name(nodeset: &NodeSet, pod: &Pod) -> bool {
    let name = nodeset.name_any();
    match nodeset.spec.scaling_mode {
        ScalingMode::StatefulSet => ordinal_of(&pod.name_any()).is_some_and(|(parent, _)| parent == name),
        ScalingMode::DaemonSet => {
            let prefix = pod.metadata.generate_name.as_deref().unwrap_or_default();
            prefix.strip_suffix('-').unwrap_or(prefix) == name
        }
    }
}
