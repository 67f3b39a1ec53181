//! Writes to slurmctld pods: the label of the active daemon, the annotation that makes kubelets sync mounted files, and
//! the deletion of stuck pods.

use super::Step;
use crate::observe::Observed;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use slinky_api::labels::{CONTROLLER_ACTIVE, TRUE, annotations};
use slinky_api::names::controller as names;
use std::collections::BTreeSet;
use std::sync::Arc;

/// After this long without a confirmation the annotation is written again.
const REMINDER: SignedDuration = SignedDuration::from_secs(15);

/// The label with which a StatefulSet names the revision of a pod.
pub const POD_REVISION: &str = "controller-revision-hash";

/// How the active daemon is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActiveDaemon {
    /// There is only this one.
    Single(String),
    /// This one reports to be active.
    Reported(String),
    /// Ready daemons do not answer this operator, so the first ready one counts as active: a primary that starts takes
    /// control back from its backups.
    Assumed {
        /// The first ready pod.
        pod: String,
        /// The ready pods that do not answer.
        silent: Vec<String>,
    },
    /// None reports to be active. The one that has the label keeps it.
    Unknown(String),
}

impl ActiveDaemon {
    /// Name of the pod.
    pub fn pod(&self) -> &str {
        match self {
            Self::Single(pod) | Self::Reported(pod) | Self::Assumed { pod, .. } | Self::Unknown(pod) => pod,
        }
    }
}

/// The active daemon.
pub fn active_daemon(observed: &Observed) -> ActiveDaemon {
    let spec = &observed.controller.spec;
    let pod = |ordinal| names::pod(&observed.controller.name_any(), ordinal);
    if !spec.is_highly_available() {
        return ActiveDaemon::Single(pod(0));
    }
    if let Some(ordinal) = observed.poll.active {
        return ActiveDaemon::Reported(pod(ordinal));
    }
    let ready: BTreeSet<String> =
        observed.pods.iter().filter(|pod| is_ready(pod)).map(|pod| pod.name_any()).collect();
    let silent: Vec<String> =
        observed.poll.silent.iter().map(|ordinal| pod(*ordinal)).filter(|pod| ready.contains(pod)).collect();
    let first_ready = (0..spec.daemons()).map(pod).find(|pod| ready.contains(pod));
    match first_ready {
        Some(pod) if !silent.is_empty() => ActiveDaemon::Assumed { pod, silent },
        _ => {
            let labelled = observed.active_pod().map(|pod| pod.name_any());
            ActiveDaemon::Unknown(labelled.unwrap_or_else(|| pod(0)))
        }
    }
}

/// Moves the label that the client Service selects to the active daemon. It is set before it is removed elsewhere, so that
/// the Service always has an endpoint.
pub fn active_labels(observed: &Observed) -> Vec<Step> {
    let active = active_daemon(observed);
    let pods = observed.pods.iter().map(|pod| (pod, pod.name_any() == active.pod()));
    let mut changed: Vec<_> = pods
        .filter(|(pod, is_active)| {
            pod.labels().get(CONTROLLER_ACTIVE).map(String::as_str) != is_active.then_some(TRUE)
        })
        .collect();
    changed.sort_by_key(|(_, is_active)| !is_active);
    changed.into_iter().map(|(pod, is_active)| Step::LabelPod { pod: pod.name_any(), is_active }).collect()
}

/// False if the Service of another operator, which selects pods without the label, would lose its endpoints: then the label
/// is set first, and its watch event starts the next reconcile.
pub fn is_label_selectable(observed: &Observed) -> bool {
    let selector = observed.service.as_ref().and_then(|service| service.spec.as_ref()?.selector.as_ref());
    let is_selected = selector.is_none_or(|selector| selector.contains_key(CONTROLLER_ACTIVE));
    is_selected || observed.pods.is_empty() || observed.active_pod().is_some()
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
