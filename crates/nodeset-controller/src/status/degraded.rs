//! What is wrong with a NodeSet and stays wrong without help.

use super::EffectsState;
use super::message::{Part, few, workers};
use crate::observe::Observed;
use crate::plan::{Plan, WaitFor};
use crate::slurm::View;
use crate::worker::Worker;
use jiff::{SignedDuration, Timestamp};
use operator_runtime::Classify;
use operator_runtime::error::chain;
use slinky_api::conditions::{SLURM_REACHABLE, find};
use slinky_api::v1beta1::NodeSetStatus;
use std::collections::BTreeSet;

/// How long Slurm may be silent before somebody should look: longer than slurmctld takes to start or to fail over.
const LONG: SignedDuration = SignedDuration::from_mins(5);

/// How long the scheduler may look for a place before somebody should look: longer than a pod takes to leave one.
const HOMELESS: SignedDuration = SignedDuration::from_secs(30);

/// All that is wrong, the cause of the rest first.
pub fn degraded(
    observed: &Observed,
    plan: &Plan,
    effects: &EffectsState,
    status: &NodeSetStatus,
    now: Timestamp,
) -> Vec<Part> {
    let obstacles = plan.obstacles.iter().map(|obstacle| Part::new(obstacle.category(), chain(obstacle)));
    obstacles
        .chain(unreachable_for(observed, status, now))
        .chain(failures(effects))
        .chain(lost_jobs(plan))
        .chain(homeless(plan, now))
        .collect()
}

fn unreachable_for(observed: &Observed, status: &NodeSetStatus, now: Timestamp) -> Option<Part> {
    let View::Unknown { why, .. } = &observed.slurm else { return None };
    let since = silent_since(status)?;
    let text = format!("nothing is known of Slurm since {since}, and no worker leaves until it is: {why}");
    (now.duration_since(since) >= LONG).then(|| Part::new("SlurmUnreachable", text))
}

/// In how long something that lasts will have lasted for too long; `None` if nothing does.
pub fn becomes_trouble(
    observed: &Observed,
    plan: &Plan,
    status: &NodeSetStatus,
    now: Timestamp,
) -> Option<SignedDuration> {
    let is_unknown = matches!(observed.slurm, View::Unknown { .. });
    let unreachable_for =
        silent_since(status).filter(|_| is_unknown).map(|since| LONG - now.duration_since(since));
    let homeless =
        plan.workers.iter().filter_map(no_place).map(|(since, _)| HOMELESS - now.duration_since(since));
    unreachable_for.into_iter().chain(homeless).filter(SignedDuration::is_positive).min()
}

/// Workers that no Kubernetes node takes, in the words that the scheduler has for the first.
fn homeless(plan: &Plan, now: Timestamp) -> Option<Part> {
    let long = |since: Timestamp| now.duration_since(since) >= HOMELESS;
    let pods: Vec<_> = plan
        .workers
        .iter()
        .filter_map(|worker| Some((worker.name(), no_place(worker).filter(|(since, _)| long(*since))?.1)))
        .collect();
    let (_, why) = pods.first()?;
    let names: Vec<_> = pods.iter().map(|(name, _)| name.as_str()).collect();
    let text = format!("no Kubernetes node takes {}: {why} ({})", workers(pods.len()), few(&names));
    Some(Part::new("Unschedulable", text))
}

/// Since when the scheduler finds no place for a worker, and why.
fn no_place(worker: &Worker) -> Option<(Timestamp, &str)> {
    let conditions = worker.pod.status.as_ref()?.conditions.as_ref().filter(|_| worker.is_alive())?;
    let unscheduled = conditions
        .iter()
        .find(|told| told.type_ == "PodScheduled" && told.reason.as_deref() == Some("Unschedulable"))
        .filter(|told| told.status == "False")?;
    let since = unscheduled.last_transition_time.as_ref().map(|time| time.0).or(worker.created)?;
    Some((since, unscheduled.message.as_deref().unwrap_or_default()))
}

/// Since when nothing is known of Slurm.
pub fn silent_since(status: &NodeSetStatus) -> Option<Timestamp> {
    let condition = find(&status.conditions, SLURM_REACHABLE)?;
    (condition.status != "True").then_some(condition.last_transition_time.0)
}

/// What failed, once each: one fault often meets many objects.
fn failures(effects: &EffectsState) -> Option<Part> {
    let (reason, _) = effects.errors.first()?;
    let mut told = BTreeSet::new();
    let texts: Vec<_> =
        effects.errors.iter().map(|(_, text)| text.as_str()).filter(|text| told.insert(*text)).collect();
    Some(Part::new(reason, few(&texts)))
}

fn lost_jobs(plan: &Plan) -> Option<Part> {
    let lost = plan.waiting.iter().filter(|waiting| waiting.for_ == WaitFor::LostJob);
    let pods: Vec<_> = lost.map(|waiting| waiting.pod.as_str()).collect();
    let text = format!(
        "{} should leave, but had a job when Slurm forgot the node, and nobody can tell whether it still runs: delete the \
         pod when the job may end ({})",
        workers(pods.len()),
        few(&pods)
    );
    (!pods.is_empty()).then(|| Part::new("JobLost", text))
}
