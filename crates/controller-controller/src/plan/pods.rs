//! What the pods of slurmctld are told: which of them is active, what to mount, and that it is over.

use super::Config;
use crate::observe::{Observed, Report};
use crate::rollout::Step;
use crate::status::{UNCONFIRMED, confirmed, last_word};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use slinky_api::labels::{CONTROLLER_ACTIVE, TRUE, annotations};
use slinky_api::names::controller as names;
use slinky_api::v1beta1::Controller;
use std::sync::Arc;

/// When kubelets that do not seem to have mounted a configuration are told again.
const REMINDER: SignedDuration = SignedDuration::from_secs(15);

/// The label by which a StatefulSet tells which revision a pod is of.
pub const POD_REVISION: &str = "controller-revision-hash";

/// Clients are led to the active daemon. Without news the mark stays where it is.
pub fn marks(controller: &Controller, observed: &Observed) -> Vec<(String, bool)> {
    let name = controller.name_any();
    let marked = observed.active_pod().map(|pod| pod.name_any());
    let active = match observed.active {
        _ if !controller.spec.is_highly_available() => names::pod(&name, 0),
        Some(ordinal) => names::pod(&name, ordinal),
        None => marked.unwrap_or_else(|| names::pod(&name, 0)),
    };
    let pods = observed.pods.iter().map(|pod| (pod, pod.name_any() == active));
    pods.filter(|(pod, active)| {
        pod.labels().get(CONTROLLER_ACTIVE).map(String::as_str) != active.then_some(TRUE)
    })
    .map(|(pod, active)| (pod.name_any(), active))
    .collect()
}

/// A kubelet looks at mounted files once a minute, and at once when its pod changes: so the pod is told.
pub fn announcements(
    controller: &Controller,
    observed: &Observed,
    config: &Config,
    now: Timestamp,
) -> Vec<(String, String)> {
    let is_wanted = controller.spec.inplace_reconfigure
        && matches!(config.step, Step::Keep | Step::Write(_))
        && !confirmed(controller, &config.name)
        && observed.report != Some(Report::Took(config.name.clone()));
    if !is_wanted {
        return vec![];
    }
    let gave_up = last_word(controller).is_some_and(|condition| condition.reason == UNCONFIRMED);
    let due = |pod: &Pod| match announced(pod) {
        Some((told, at)) if told == config.name => !gave_up && now.duration_since(at) > REMINDER,
        _ => true,
    };
    let value = format!("{} {now}", config.name);
    observed.pods.iter().filter(|pod| due(pod)).map(|pod| (pod.name_any(), value.clone())).collect()
}

/// What a pod's kubelet was told, and when.
fn announced(pod: &Pod) -> Option<(&str, Timestamp)> {
    let (name, at) = pod.annotations().get(annotations::CONFIG)?.split_once(' ')?;
    Some((name, at.parse().ok()?))
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Pods of an old revision that do not start. Kubernetes waits for them to be ready before it replaces them: a mistake
/// that keeps slurmctld from starting could not be undone.
pub fn stuck(observed: &Observed) -> Vec<Arc<Pod>> {
    let Some(set) = &observed.stateful_set else { return vec![] };
    let status = set.status.clone().unwrap_or_default();
    let wanted = status.update_revision.filter(|_| status.observed_generation >= set.metadata.generation);
    let Some(wanted) = wanted else { return vec![] };
    let is_old = |pod: &Pod| pod.labels().get(POD_REVISION).is_some_and(|revision| *revision != wanted);
    let pods = observed.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    pods.filter(|pod| is_old(pod) && !is_ready(pod) && is_waiting(pod)).cloned().collect()
}

/// True if no container of the pod's own runs.
fn is_waiting(pod: &Pod) -> bool {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().all(|status| status.state.as_ref().is_none_or(|state| state.running.is_none()))
}
