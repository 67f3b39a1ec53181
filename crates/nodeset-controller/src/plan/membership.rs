//! Which pods belong to a NodeSet: by controller reference, or by labels and name for orphans.
//!
//! The Controller of the Slurm cluster owns the workers too. In a foreground deletion of the NodeSet the garbage collector
//! deletes at once what the NodeSet alone owns, whatever finalizers it has; from a worker it only removes the reference to
//! the NodeSet, and the worker is drained first.

use super::Effect;
use crate::observe::Observed;
use crate::worker::Worker;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use slinky_api::labels::{CLUSTER, selector_labels};
use slinky_api::ownership::{Control, control_of, controller_reference, retaining_reference};
use slinky_api::v1beta1::{NodeSet, ScalingMode};
use slinky_api::workers::ordinal_of;

/// The finalizer that the API server sets in a deletion that leaves the dependents as they are.
const ORPHAN_FINALIZER: &str = "orphan";

/// The workers of a NodeSet, with the adoptions and releases.
pub struct Membership {
    /// Its workers ordered by name, including orphans about to be adopted.
    pub workers: Vec<Worker>,
    /// Pods to adopt or release.
    pub effects: Vec<Effect>,
}

/// Selects the workers among the pods.
pub fn membership(observed: &Observed) -> Membership {
    let nodeset = observed.nodeset.as_ref();
    let is_deleting = nodeset.metadata.deletion_timestamp.is_some();
    let owners = Owners::new(observed);
    let (mut workers, mut effects) = (vec![], vec![]);
    let mut pods: Vec<_> = observed.pods.iter().collect();
    pods.sort_by_key(|pod| pod.name_any());
    for pod in pods {
        let mut worker = Worker::new(pod.clone());
        let cluster = pod.labels().get(CLUSTER);
        worker.other_cluster = cluster.filter(|name| **name != nodeset.spec.controller_ref.name).cloned();
        match (control_of(&pod.metadata, nodeset), missing_label(nodeset, &pod.metadata)) {
            (Control::Ours, Some(_)) => effects.push(Effect::ReleasePod(worker.reference())),
            (Control::Ours, None) => {
                if !is_deleting && !worker.terminating && !owners.are_complete(pod) {
                    effects.push(owners.adopt(&worker));
                }
                workers.push(worker);
            }
            (Control::Orphan, None) if has_our_name(nodeset, pod) => {
                // A NodeSet that is being deleted adopts no pods; those that it lost by its foreground deletion are its
                // workers still.
                if is_deleting && owners.are_retained(pod) && !is_orphaning(observed) {
                    workers.push(worker);
                } else if !is_deleting && !worker.terminating {
                    effects.push(owners.adopt(&worker));
                    workers.push(worker);
                }
            }
            (Control::Orphan | Control::Foreign(_), _) => {}
        }
    }
    Membership { workers, effects }
}

/// Whether the NodeSet is being deleted without its dependents (`--cascade=orphan`).
///
/// The garbage collector removes the finalizer once it has removed the references to the NodeSet from all dependents. From
/// then on the revisions show it: in a foreground deletion they are deleted.
pub fn is_orphaning(observed: &Observed) -> bool {
    let nodeset = observed.nodeset.as_ref();
    let is_orphan = |object: &ObjectMeta| {
        control_of(object, nodeset) == Control::Orphan
            && object.deletion_timestamp.is_none()
            && missing_label(nodeset, object).is_none()
    };
    nodeset.metadata.deletion_timestamp.is_some()
        && (nodeset.finalizers().iter().any(|name| name == ORPHAN_FINALIZER)
            || observed.revisions.iter().any(|revision| is_orphan(&revision.metadata)))
}

/// The owners that a worker should have.
struct Owners {
    nodeset: Option<OwnerReference>,
    /// The Controller, unless it is being deleted.
    cluster: Option<OwnerReference>,
}

impl Owners {
    fn new(observed: &Observed) -> Self {
        let controller = observed.controller.as_deref();
        let existing = controller.filter(|controller| controller.metadata.deletion_timestamp.is_none());
        Self {
            nodeset: controller_reference(observed.nodeset.as_ref()),
            cluster: existing.and_then(retaining_reference),
        }
    }

    fn are_complete(&self, pod: &Pod) -> bool {
        self.cluster.is_none() || self.are_retained(pod)
    }

    fn are_retained(&self, pod: &Pod) -> bool {
        let is_owner = |uid: &String| pod.owner_references().iter().any(|owner| owner.uid == *uid);
        self.cluster.as_ref().is_some_and(|cluster| is_owner(&cluster.uid))
    }

    fn adopt(&self, worker: &Worker) -> Effect {
        let owners = self.nodeset.iter().chain(&self.cluster).cloned().collect();
        Effect::AdoptPod { pod: worker.reference(), owners }
    }
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
