//! Writes to slurmctld pods: the label of the active daemon, the annotation that makes kubelets sync mounted files, and
//! the deletion of stuck pods.

use super::Step;
use crate::observe::Observed;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use slinky_api::labels::{CONTROLLER_ACTIVE, TRUE, annotations};
use slinky_api::names::controller as names;
use std::sync::Arc;

/// After this long without a confirmation the annotation is written again.
const REMINDER: SignedDuration = SignedDuration::from_secs(15);

/// The label with which a StatefulSet names the revision of a pod.
pub const POD_REVISION: &str = "controller-revision-hash";

/// Moves the label that the client Service selects to the active daemon. While no daemon reports to be active, the label
/// stays where it is.
pub fn active_labels(observed: &Observed) -> Vec<Step> {
    let name = observed.controller.name_any();
    let labelled = observed.active_pod().map(|pod| pod.name_any());
    let active = match observed.active {
        _ if !observed.controller.spec.is_highly_available() => names::pod(&name, 0),
        Some(ordinal) => names::pod(&name, ordinal),
        None => labelled.unwrap_or_else(|| names::pod(&name, 0)),
    };
    let pods = observed.pods.iter().map(|pod| (pod, pod.name_any() == active));
    pods.filter(|(pod, is_active)| {
        pod.labels().get(CONTROLLER_ACTIVE).map(String::as_str) != is_active.then_some(TRUE)
    })
    .map(|(pod, is_active)| Step::LabelPod { pod: pod.name_any(), is_active })
    .collect()
}

/// Makes kubelets mount the configuration of this hash now: a kubelet syncs mounted ConfigMaps once a minute, and at once
/// when its pod changes. Written again after [`REMINDER`] unless `is_final`.
pub fn config_annotations(observed: &Observed, config: &str, is_final: bool, now: Timestamp) -> Vec<Step> {
    let is_due = |pod: &Pod| match annotated_config(pod) {
        Some((annotated, at)) if annotated == config => !is_final && now.duration_since(at) > REMINDER,
        _ => true,
    };
    let pods = observed.pods.iter().filter(|pod| is_due(pod));
    pods.map(|pod| Step::AnnotatePod { pod: pod.name_any(), config: format!("{config} {now}") }).collect()
}

/// The configuration in a pod's annotation, and when it was written.
fn annotated_config(pod: &Pod) -> Option<(&str, Timestamp)> {
    let (config, at) = pod.annotations().get(annotations::CONFIG)?.split_once(' ')?;
    Some((config, at.parse().ok()?))
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Pods of an old revision that do not start. A StatefulSet waits for them to be ready before it replaces them, so that a
/// mistake that keeps slurmctld from starting could not be undone.
pub fn stuck_pods(observed: &Observed) -> Vec<Arc<Pod>> {
    let Some(set) = &observed.stateful_set else { return vec![] };
    let status = set.status.clone().unwrap_or_default();
    let desired = status.update_revision.filter(|_| status.observed_generation >= set.metadata.generation);
    let Some(desired) = desired else { return vec![] };
    let is_old = |pod: &Pod| pod.labels().get(POD_REVISION).is_some_and(|revision| *revision != desired);
    let pods = observed.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    pods.filter(|pod| is_old(pod) && !is_ready(pod) && !is_running(pod)).cloned().collect()
}

/// True if a container of the pod runs, init containers aside.
fn is_running(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().any(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}
