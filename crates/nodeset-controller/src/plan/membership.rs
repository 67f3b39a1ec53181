//! Which pods belong to a NodeSet: by controller reference, or by labels and name for orphans.

use super::Effect;
use crate::worker::{Worker, ordinal_of};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use slinky_api::labels::selector_labels;
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::{NodeSet, ScalingMode};
use std::sync::Arc;

/// The workers of a NodeSet, with the adoptions and releases.
pub struct Membership {
    /// Its workers ordered by name, including orphans about to be adopted.
    pub workers: Vec<Worker>,
    /// Pods to adopt or release.
    pub effects: Vec<Effect>,
}

/// Selects the workers among the pods.
pub fn membership(nodeset: &NodeSet, pods: &[Arc<Pod>]) -> Membership {
    let mut workers = vec![];
    let mut effects = vec![];
    let mut pods: Vec<_> = pods.iter().collect();
    pods.sort_by_key(|pod| pod.name_any());
    for pod in pods {
        let worker = Worker::new(pod.clone());
        match (control_of(&pod.metadata, nodeset), missing_label(nodeset, &pod.metadata)) {
            (Control::Ours, None) => workers.push(worker),
            (Control::Ours, Some(_)) => effects.push(Effect::ReleasePod(worker.reference())),
            (Control::Orphan, None) if !worker.terminating && has_our_name(nodeset, pod) => {
                // A NodeSet that is being deleted adopts no pods.
                if nodeset.metadata.deletion_timestamp.is_none() {
                    effects.push(Effect::AdoptPod(worker.reference()));
                    workers.push(worker);
                }
            }
            (Control::Orphan | Control::Foreign(_), _) => {}
        }
    }
    Membership { workers, effects }
}

/// A selector label of the NodeSet that a pod lacks, as `key=value`.
pub fn missing_label(nodeset: &NodeSet, pod: &ObjectMeta) -> Option<String> {
    let has = |key: &String, value: &String| {
        pod.labels.as_ref().and_then(|labels| labels.get(key)).is_some_and(|found| found == value)
    };
    let mut missing = selector_labels(nodeset).into_iter().filter(|(key, value)| !has(key, value));
    missing.next().map(|(key, value)| format!("{key}={value}"))
}

/// Whether an orphan is named like a pod of this NodeSet.
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
