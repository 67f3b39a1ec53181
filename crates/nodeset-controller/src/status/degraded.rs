//! The Degraded condition: errors that need an administrator.

use super::clause::{Clause, few, workers};
use crate::execute::Execution;
use crate::observe::Observed;
use crate::plan::{Plan, UselessWorker, WaitFor};
use crate::slurm::View;
use crate::slurm::reachability::{degrades_in, is_degraded};
use crate::timing::UNSCHEDULABLE_AFTER;
use crate::worker::Worker;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use operator_runtime::Classify;
use operator_runtime::error::chain;
use slinky_api::conditions::{SLURM_REACHABLE, find};
use slinky_api::v1beta1::NodeSetStatus;
use std::collections::BTreeSet;
use std::time::Duration;

/// All errors; causes come before their consequences.
pub fn degraded(
    observed: &Observed,
    plan: &Plan,
    last_run: &Execution,
    status: &NodeSetStatus,
    now: Timestamp,
) -> Vec<Clause> {
    let obstacles = plan.obstacles.iter().map(|obstacle| Clause::new(obstacle.category(), chain(obstacle)));
    obstacles
        .chain(refused(observed))
        .chain(slurm_unreachable(observed, status, now))
        .chain(failures(last_run))
        .chain(lost_jobs(plan))
        .chain(other_names(plan))
        .chain(blocked_update(plan))
        .chain(unschedulable(plan, now))
        .collect()
}

/// The NodeSet is not in slurm.conf as its spec says: what is in force for it stays, and the Controller says why.
fn refused(observed: &Observed) -> Option<Clause> {
    let refusals = &observed.controller.as_ref()?.status.as_ref()?.refused_node_sets;
    let refusal = refusals.iter().find(|refusal| refusal.name == observed.nodeset.name_any())?;
    let text = format!("slurm.conf keeps what it has for this NodeSet: {}", refusal.message);
    Some(Clause::new("ConfigRefused", text))
}

fn slurm_unreachable(observed: &Observed, status: &NodeSetStatus, now: Timestamp) -> Option<Clause> {
    let View::Unknown { why, .. } = &observed.slurm else { return None };
    let since = unreachable_since(status)?;
    let text =
        format!("Slurm has been unreachable since {since}, and no worker is removed until it answers: {why}");
    is_degraded(elapsed(since, now)).then(|| Clause::new("SlurmUnreachable", text))
}

/// Zero if `since` is in the future: the clock of the replica that wrote it may be ahead.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or_default()
}

/// Time until an unreachable Slurm or an unschedulable pod becomes an error; `None` if there is neither.
pub fn degraded_in(
    observed: &Observed,
    plan: &Plan,
    status: &NodeSetStatus,
    now: Timestamp,
) -> Option<SignedDuration> {
    let is_unknown = matches!(observed.slurm, View::Unknown { .. });
    let unreachable = unreachable_since(status).filter(|_| is_unknown);
    let unreachable = unreachable.and_then(|since| degrades_in(elapsed(since, now)));
    let unreachable = unreachable.and_then(|left| SignedDuration::try_from(left).ok());
    let unschedulable = plan
        .workers
        .iter()
        .filter_map(unschedulable_since)
        .map(|(since, _)| UNSCHEDULABLE_AFTER - now.duration_since(since));
    unreachable.into_iter().chain(unschedulable).filter(SignedDuration::is_positive).min()
}

/// Workers that no Kubernetes node fits, with the scheduler's message for the first of them.
fn unschedulable(plan: &Plan, now: Timestamp) -> Option<Clause> {
    let long = |since: Timestamp| now.duration_since(since) >= UNSCHEDULABLE_AFTER;
    let pods: Vec<_> = plan
        .workers
        .iter()
        .filter_map(|worker| {
            Some((worker.name(), unschedulable_since(worker).filter(|(since, _)| long(*since))?.1))
        })
        .collect();
    let (_, why) = pods.first()?;
    let names: Vec<_> = pods.iter().map(|(name, _)| name.as_str()).collect();
    let text = format!("no Kubernetes node fits {}: {why} ({})", workers(pods.len()), few(&names));
    Some(Clause::new("Unschedulable", text))
}

/// Since when a worker is unschedulable, and why.
fn unschedulable_since(worker: &Worker) -> Option<(Timestamp, &str)> {
    let conditions = worker.pod.status.as_ref()?.conditions.as_ref().filter(|_| worker.is_alive())?;
    let unscheduled = conditions
        .iter()
        .find(|condition| {
            condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("Unschedulable")
        })
        .filter(|condition| condition.status == "False")?;
    let since = unscheduled.last_transition_time.as_ref().map(|time| time.0).or(worker.created)?;
    Some((since, unscheduled.message.as_deref().unwrap_or_default()))
}

/// Since when Slurm is unreachable.
pub fn unreachable_since(status: &NodeSetStatus) -> Option<Timestamp> {
    let condition = find(&status.conditions, SLURM_REACHABLE)?;
    (condition.status != "True").then_some(condition.last_transition_time.0)
}

/// Failed writes; equal messages are shown once, because one cause often fails many objects.
fn failures(last_run: &Execution) -> Option<Clause> {
    let (reason, _) = last_run.errors.first()?;
    let mut shown = BTreeSet::new();
    let texts: Vec<_> =
        last_run.errors.iter().map(|(_, text)| text.as_str()).filter(|text| shown.insert(*text)).collect();
    Some(Clause::new(reason, few(&texts)))
}

fn waiting_pods(plan: &Plan, for_: WaitFor) -> Vec<&str> {
    let waiting = plan.waiting.iter().filter(|waiting| waiting.for_ == for_);
    waiting.map(|waiting| waiting.pod.as_str()).collect()
}

fn other_names(plan: &Plan) -> Option<Clause> {
    let pods = waiting_pods(plan, WaitFor::OtherName);
    let text = format!(
        "{} should be replaced or removed, is not registered in Slurm, and a Slurm node that no pod is known to run may be \
         its slurmd under another name: let slurmd register with the hostname of the pod, or delete the pod ({})",
        workers(pods.len()),
        few(&pods)
    );
    (!pods.is_empty()).then(|| Clause::new("RegisteredUnderAnotherName", text))
}

/// An update that waits for updated workers to be of use.
fn blocked_update(plan: &Plan) -> Option<Clause> {
    let nodes: Vec<_> = plan.useless.iter().map(describe).collect();
    let text =
        format!("the update waits for {} that Slurm gives no jobs: {}", workers(nodes.len()), few(&nodes));
    (!nodes.is_empty()).then(|| Clause::new("UpdateBlocked", text))
}

fn describe(worker: &UselessWorker) -> String {
    let UselessWorker { pod, state, reason } = worker;
    match (state.is_empty(), reason.is_empty()) {
        (true, _) => format!("{pod} is not registered"),
        (false, true) => format!("{pod} is {state}"),
        (false, false) => format!("{pod} is {state} ({reason})"),
    }
}

fn lost_jobs(plan: &Plan) -> Option<Clause> {
    let pods = waiting_pods(plan, WaitFor::LostJob);
    let text = format!(
        "{} to be removed had a job when Slurm lost the node record, and the job may still run: delete the pod once the \
         job may end ({})",
        workers(pods.len()),
        few(&pods)
    );
    (!pods.is_empty()).then(|| Clause::new("JobLost", text))
}
