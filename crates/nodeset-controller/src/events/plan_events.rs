//! Events that announce what a plan starts: scaling, updates, cordons. Each operation is published once, when it starts, and
//! many of one kind in one Event.
//!
//! Pods that were chosen for removal carry a mark. So a process that takes over announces the pods that it chooses itself,
//! and none that were chosen before.

use super::object_events::{ObjectEvents, Subject, Topic};
use crate::node_facts::expected_hostname;
use crate::observe::Observed;
use crate::plan::{DeleteReason, Effect, Plan};
use crate::worker::{Cause, Worker};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use operator_runtime::events::{EventType, NewEvent};
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::v1beta1::{ScalingMode, UpdateStrategyType};
use std::collections::{BTreeMap, BTreeSet};

/// An operation that a plan starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    /// Creates pods up to the desired number.
    ScaleUp,
    /// Removes a pod.
    ScaleDown,
    /// Replaces a pod of an old revision.
    Update {
        /// Whether the pod is healthy.
        healthy: bool,
    },
    /// An operation on one pod.
    OnPod(Topic),
}

/// The unfinished operations of one NodeSet that were announced, each with the UID of its pod or the desired number of pods.
/// `None` before the first plan of this process.
#[derive(Debug, Default)]
pub struct Published(Option<BTreeSet<(Operation, String)>>);

/// The Events for operations of a plan that were not announced before.
pub fn plan_events(observed: &Observed, plan: &Plan, published: &mut Published) -> Vec<NewEvent> {
    let begun = operations(observed, plan);
    let before = published.0.take().unwrap_or_else(|| inherited(observed, plan));
    let started: Vec<_> = begun.iter().filter(|(key, _)| !before.contains(key)).collect();
    let count = |wanted| started.iter().filter(|((operation, _), _)| *operation == wanted).count();
    let mut events: Vec<NewEvent> = vec![];
    if count(Operation::ScaleUp) > 0 {
        let creates = plan.effects.iter().filter(|effect| effect.is_create()).count();
        // One plan creates a limited number of pods.
        let missing = creates.max(plan.desired.saturating_sub(plan.workers.len()));
        events.push(scaling(observed, plan, missing, true));
    }
    let leaving = count(Operation::ScaleDown);
    if leaving > 0 {
        events.push(scaling(observed, plan, leaving, false));
    }
    for healthy in [false, true] {
        let count = count(Operation::Update { healthy });
        events.extend((count > 0).then(|| update(observed, count, healthy)));
    }
    let mut object_events = ObjectEvents::default();
    for ((operation, _), subject) in started {
        if let (Operation::OnPod(topic), Some(subject)) = (operation, subject) {
            object_events.add(*topic, subject.clone());
        }
    }
    events.extend(object_events.condensed());
    published.0 = Some(begun.into_keys().collect());
    events
}

type Operations = BTreeMap<(Operation, String), Option<Subject>>;

/// The operations that an earlier process announced, as far as the status shows them.
fn inherited(observed: &Observed, plan: &Plan) -> BTreeSet<(Operation, String)> {
    observed.is_creating().then(|| scale_up(plan)).into_iter().collect()
}

/// All creates up to one desired number are one operation.
fn scale_up(plan: &Plan) -> (Operation, String) {
    (Operation::ScaleUp, plan.desired.to_string())
}

/// The operations that the plan starts or continues.
fn operations(observed: &Observed, plan: &Plan) -> Operations {
    let mut begun = Operations::new();
    if plan.effects.is_empty() {
        return begun;
    }
    let workers = plan.workers.iter().map(|worker| (worker.pod.metadata.uid.as_deref(), worker));
    let workers: BTreeMap<_, _> = workers.collect();
    for effect in &plan.effects {
        let (pod, choice) = match effect {
            Effect::CreatePod(_) => {
                begun.insert(scale_up(plan), None);
                continue;
            }
            Effect::Cordon { pod, cause, .. } => (pod, Choice::Marked(*cause)),
            Effect::DeletePod(removal) => (&removal.pod, Choice::Deleted(removal.why)),
            Effect::SetFinalizers { .. }
            | Effect::AdoptPod { .. }
            | Effect::ReleasePod(_)
            | Effect::Drain(_)
            | Effect::Uncordon { .. }
            | Effect::SetClaimOwners { .. }
            | Effect::PutReservation(_)
            | Effect::SetReservationNodes { .. }
            | Effect::DeleteReservation(_)
            | Effect::DeleteNodeRecord { .. } => continue,
        };
        let Some(worker) = workers.get(&Some(pod.uid.as_str())) else { continue };
        if let Some((operation, subject)) = choice.operation(observed, plan, worker) {
            begun.insert((operation, pod.uid.clone()), subject);
        }
    }
    begun
}

/// How the plan chose a pod.
#[derive(Clone, Copy)]
enum Choice {
    Marked(Cause),
    Deleted(DeleteReason),
}

impl Choice {
    /// The operation that starts for a worker; `None` if it continues one.
    fn operation(
        self,
        observed: &Observed,
        plan: &Plan,
        worker: &Worker,
    ) -> Option<(Operation, Option<Subject>)> {
        let renamed = new_hostname(observed, worker);
        let outdated = worker.hash != plan.revisions.hash;
        let cause = match self {
            Self::Marked(cause) => cause,
            Self::Deleted(DeleteReason::Surplus | DeleteReason::Unwanted) => Cause::ScaleIn,
            Self::Deleted(DeleteReason::Outdated | DeleteReason::Renamed) => Cause::Update,
            Self::Deleted(DeleteReason::Failed) => return ended(worker, Topic::DaemonFailed),
            Self::Deleted(DeleteReason::Succeeded) => return ended(worker, Topic::DaemonSucceeded),
            // The first is published when the pod is deleted; the second deletes a pod that never ran.
            Self::Deleted(DeleteReason::Unregistered | DeleteReason::NodeGone) => return None,
        };
        if worker.is_marked(cause) {
            return None;
        }
        match (cause, renamed) {
            (Cause::ScaleIn, _) => Some((Operation::ScaleDown, None)),
            (Cause::Node, _) => Some(on_pod(worker, Topic::NodeCordoned, host(worker))),
            (Cause::Update, Some(name)) => Some(on_pod(worker, Topic::DaemonRenamed, name)),
            (Cause::Update, None) => {
                outdated.then(|| (Operation::Update { healthy: worker.is_healthy() }, None))
            }
        }
    }
}

fn on_pod(worker: &Worker, topic: Topic, detail: String) -> (Operation, Option<Subject>) {
    let subject = Subject::of::<Pod>(&worker.pod.metadata, detail);
    let name = format!("{}/{}", worker.pod.namespace().unwrap_or_default(), subject.name);
    (Operation::OnPod(topic), Some(Subject { name, ..subject }))
}

/// The replacement of a finished DaemonSet-mode worker; numbered workers are replaced without an Event.
fn ended(worker: &Worker, topic: Topic) -> Option<(Operation, Option<Subject>)> {
    is_daemon(worker).then(|| on_pod(worker, topic, host(worker)))
}

fn is_daemon(worker: &Worker) -> bool {
    worker.mode == Some(ScalingMode::DaemonSet)
}

fn host(worker: &Worker) -> String {
    worker.node.clone().unwrap_or_default()
}

/// The change of hostname that a DaemonSet-mode worker needs.
fn new_hostname(observed: &Observed, worker: &Worker) -> Option<String> {
    let host = observed.nodes.get(worker.node.as_ref()?).filter(|_| is_daemon(worker))?;
    let current = worker.pod.labels().get(POD_HOSTNAME).map_or("", String::as_str);
    let expected = expected_hostname(host);
    (current != expected).then(|| format!("hostname changed from {current:?} to {expected:?}"))
}

fn scaling(observed: &Observed, plan: &Plan, count: usize, up: bool) -> NewEvent {
    let (reason, action, verb) =
        if up { ("ScalingUp", "ScaleUp", "Creating") } else { ("ScalingDown", "ScaleDown", "Deleting") };
    let note = match observed.nodeset.spec.scaling_mode {
        ScalingMode::StatefulSet => {
            format!("{verb} {count} Pod(s) to stabilize at {} replicas", plan.desired)
        }
        ScalingMode::DaemonSet => format!("{verb} {count} daemon Pod(s)"),
    };
    event(reason, action, note)
}

fn update(observed: &Observed, count: usize, healthy: bool) -> NewEvent {
    let what = if healthy {
        format!("replacing {count} old pod(s) with updated revision")
    } else {
        format!("deleting {count} unhealthy old pod(s)")
    };
    match observed.nodeset.spec.effective_update_strategy().type_ {
        UpdateStrategyType::ScheduledUpdate => {
            event("Scheduled Update", "ScheduledUpdate", format!("Scheduled update: {what}"))
        }
        UpdateStrategyType::RollingUpdate | UpdateStrategyType::OnDelete => {
            event("RollingUpdate", "RollingUpdate", format!("Rolling update: {what}"))
        }
    }
}

fn event(reason: &str, action: &str, note: String) -> NewEvent {
    let type_ = EventType::Normal;
    NewEvent { type_, reason: reason.to_owned(), action: action.to_owned(), note, related: None }
}

#[cfg(test)]
mod tests;
