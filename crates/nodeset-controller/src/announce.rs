//! What a plan sets out to do, for people: every undertaking is told of when it begins, and many of one kind together.
//! No I/O.
//!
//! Pods carry the mark by which they were chosen to leave. So a process that takes over tells of those that it chooses
//! itself, and of nothing that is under way.

use crate::execute::{Notices, Subject, Topic};
use crate::node_facts::expected_hostname;
use crate::observe::Observed;
use crate::plan::{DeleteReason, Effect, Plan};
use crate::status::is_creating;
use crate::worker::{Cause, Worker};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use operator_runtime::events::{EventType, NewEvent};
use slinky_api::labels::POD_HOSTNAME;
use slinky_api::v1beta1::{ScalingMode, UpdateStrategyType};
use std::collections::{BTreeMap, BTreeSet};

/// What is done, to many pods or to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Undertaking {
    /// Pods are made until there are enough.
    ScaleUp,
    /// A pod that is not wanted any more leaves.
    ScaleDown,
    /// A pod with an old template is replaced.
    Update {
        /// Whether it serves until then.
        healthy: bool,
    },
    /// Something that is told of each pod, if there are few.
    Of(Topic),
}

/// The undertakings of one NodeSet that were told of and are not done: what, and the pod or the number of pods that it
/// is about. `None` until this process has looked.
#[derive(Debug, Default)]
pub struct Announced(Option<BTreeSet<(Undertaking, String)>>);

/// What to tell of a plan, given what was told before.
pub fn announce(observed: &Observed, plan: &Plan, announced: &mut Announced) -> Vec<NewEvent> {
    let begun = undertakings(observed, plan);
    let before = announced.0.take().unwrap_or_else(|| inherited(observed, plan));
    let news: Vec<_> = begun.iter().filter(|(key, _)| !before.contains(key)).collect();
    let count = |wanted| news.iter().filter(|((undertaking, _), _)| *undertaking == wanted).count();
    let mut told: Vec<NewEvent> = vec![];
    if count(Undertaking::ScaleUp) > 0 {
        let creates = plan.effects.iter().filter(|effect| effect.is_create()).count();
        // A plan makes no more than some at a time.
        let missing = creates.max(plan.desired.saturating_sub(plan.workers.len()));
        told.push(scaling(observed, plan, missing, true));
    }
    let leaving = count(Undertaking::ScaleDown);
    if leaving > 0 {
        told.push(scaling(observed, plan, leaving, false));
    }
    for healthy in [false, true] {
        let count = count(Undertaking::Update { healthy });
        told.extend((count > 0).then(|| update(observed, count, healthy)));
    }
    let mut notices = Notices::default();
    for ((undertaking, _), subject) in news {
        if let (Undertaking::Of(topic), Some(subject)) = (undertaking, subject) {
            notices.tell(*topic, subject.clone());
        }
    }
    told.extend(notices.condensed());
    announced.0 = Some(begun.into_keys().collect());
    told
}

type Undertakings = BTreeMap<(Undertaking, String), Option<Subject>>;

/// What an earlier process told, as far as the status shows it.
fn inherited(observed: &Observed, plan: &Plan) -> BTreeSet<(Undertaking, String)> {
    is_creating(&observed.nodeset).then(|| scale_up(plan)).into_iter().collect()
}

/// Pods that are made one after another until there are enough are one undertaking.
fn scale_up(plan: &Plan) -> (Undertaking, String) {
    (Undertaking::ScaleUp, plan.desired.to_string())
}

/// What the plan begins.
fn undertakings(observed: &Observed, plan: &Plan) -> Undertakings {
    let mut begun = Undertakings::new();
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
            | Effect::AdoptPod(_)
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
        if let Some((undertaking, subject)) = choice.told(observed, plan, worker) {
            begun.insert((undertaking, pod.uid.clone()), subject);
        }
    }
    begun
}

/// How a pod was chosen.
#[derive(Clone, Copy)]
enum Choice {
    Marked(Cause),
    Deleted(DeleteReason),
}

impl Choice {
    /// What this begins for a worker, and what to say of it; `None` if it goes on with what was begun before.
    fn told(
        self,
        observed: &Observed,
        plan: &Plan,
        worker: &Worker,
    ) -> Option<(Undertaking, Option<Subject>)> {
        let renamed = new_hostname(observed, worker);
        let outdated = worker.hash != plan.revisions.hash;
        let cause = match self {
            Self::Marked(cause) => cause,
            Self::Deleted(DeleteReason::Surplus | DeleteReason::Unwanted) => Cause::ScaleIn,
            Self::Deleted(DeleteReason::Outdated | DeleteReason::Renamed) => Cause::Update,
            Self::Deleted(DeleteReason::Failed) => return ended(worker, Topic::DaemonFailed),
            Self::Deleted(DeleteReason::Succeeded) => return ended(worker, Topic::DaemonSucceeded),
            // The first is told when it is done; the second ends what never began.
            Self::Deleted(DeleteReason::Unregistered | DeleteReason::NodeGone) => return None,
        };
        if worker.is_marked(cause) {
            return None;
        }
        match (cause, renamed) {
            (Cause::ScaleIn, _) => Some((Undertaking::ScaleDown, None)),
            (Cause::Node, _) => Some(of_one(worker, Topic::NodeCordoned, host(worker))),
            (Cause::Update, Some(name)) => Some(of_one(worker, Topic::DaemonRenamed, name)),
            (Cause::Update, None) => {
                outdated.then(|| (Undertaking::Update { healthy: worker.is_healthy() }, None))
            }
        }
    }
}

fn of_one(worker: &Worker, topic: Topic, detail: String) -> (Undertaking, Option<Subject>) {
    let subject = Subject::of::<Pod>(&worker.pod.metadata, detail);
    let name = format!("{}/{}", worker.pod.namespace().unwrap_or_default(), subject.name);
    (Undertaking::Of(topic), Some(Subject { name, ..subject }))
}

/// A worker on its Kubernetes node that ended; numbered ones are made anew without words.
fn ended(worker: &Worker, topic: Topic) -> Option<(Undertaking, Option<Subject>)> {
    is_daemon(worker).then(|| of_one(worker, topic, host(worker)))
}

fn is_daemon(worker: &Worker) -> bool {
    worker.mode == Some(ScalingMode::DaemonSet)
}

fn host(worker: &Worker) -> String {
    worker.node.clone().unwrap_or_default()
}

/// Which hostname a worker has and which it should have, if that is another one.
fn new_hostname(observed: &Observed, worker: &Worker) -> Option<String> {
    let host = observed.nodes.get(worker.node.as_ref()?).filter(|_| is_daemon(worker))?;
    let has = worker.pod.labels().get(POD_HOSTNAME).map_or("", String::as_str);
    let should = expected_hostname(host);
    (has != should).then(|| format!("hostname changed from {has:?} to {should:?}"))
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
    notice(reason, action, note)
}

fn update(observed: &Observed, count: usize, healthy: bool) -> NewEvent {
    let what = if healthy {
        format!("replacing {count} old pod(s) with updated revision")
    } else {
        format!("deleting {count} unhealthy old pod(s)")
    };
    match observed.nodeset.spec.effective_update_strategy().type_ {
        UpdateStrategyType::ScheduledUpdate => {
            notice("Scheduled Update", "ScheduledUpdate", format!("Scheduled update: {what}"))
        }
        UpdateStrategyType::RollingUpdate | UpdateStrategyType::OnDelete => {
            notice("RollingUpdate", "RollingUpdate", format!("Rolling update: {what}"))
        }
    }
}

fn notice(reason: &str, action: &str, note: String) -> NewEvent {
    let type_ = EventType::Normal;
    NewEvent { type_, reason: reason.to_owned(), action: action.to_owned(), note, related: None }
}

#[cfg(test)]
mod tests;
