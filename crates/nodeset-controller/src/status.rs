//! The status of a NodeSet. No I/O. Numbers of pods are always current; numbers of Slurm nodes stay as they were while Slurm
//! is unreachable. A process that has not polled Slurm yet changes nothing that depends on Slurm.

mod clause;
mod degraded;
mod partition;
mod progress;
mod ready;

use crate::execute::Execution;
use crate::observe::{NOT_POLLED_YET, Observed};
use crate::plan::{Plan, ReservationStatus, slurm_state_names};
use crate::slurm::View;
use crate::timing::{STATUS_PAUSE, remaining};
use crate::worker::Worker;
use clause::{Clause, joined};
use degraded::{degraded, degraded_in};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use partition::set_partition_held;
use progress::Progress;
use slinky_api::conditions::{
    AS_EXPECTED, ConditionStatus, ConditionUpdate, DEGRADED, NOT_DEGRADED, NOT_PROGRESSING, PROGRESSING,
    READY, RESERVATION_CREATED, SLURM_REACHABLE, find, is_true, remove, set,
};
use slinky_api::labels::{selector_labels, to_selector};
use slinky_api::v1beta1::{NodeSetStatus, ScalingMode};
use slurm_rest::{Node, NodeState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Reason of `SlurmReachable` while Slurm does not answer.
const NOT_ANSWERING: &str = "NotAnswering";

/// The status after a reconcile.
pub fn status(observed: &Observed, plan: &Plan, last_run: &Execution, now: Timestamp) -> NodeSetStatus {
    let nodeset = &observed.nodeset;
    let mut status = nodeset.status.clone().unwrap_or_default();
    count_pods(&mut status, observed, plan, |worker| worker.is_available(plan.min_ready, now));
    count_slurm_nodes(&mut status, observed, plan);
    status.observed_generation = nodeset.metadata.generation;
    status.node_set_hash.clone_from(&plan.revisions.hash);
    status.collision_count = Some(plan.revisions.collision_count);
    status.ordinal_to_node = plan.pins.clone().filter(|pins| !pins.is_empty());
    status.selector = to_selector(&selector_labels(nodeset.as_ref()));
    if is_unchanged_since_restart(&status, observed, plan, last_run) {
        return status;
    }

    let is_new = status.conditions.is_empty();
    let mut set_condition = |update| set(&mut status.conditions, update, nodeset.metadata.generation, now);
    match &observed.slurm {
        View::NoRestApi => {}
        View::Unknown { overdue: false, .. } if !is_new => {}
        View::Unknown { why, overdue } => {
            let reason = if *overdue { NOT_ANSWERING } else { NOT_POLLED_YET };
            set_condition(update(SLURM_REACHABLE, ConditionStatus::Unknown, reason, why.clone()));
        }
        View::Known(_) => {
            set_condition(update(
                SLURM_REACHABLE,
                ConditionStatus::True,
                "Answering",
                "slurmrestd answers".to_owned(),
            ));
        }
    }
    match &plan.reservation {
        ReservationStatus::Unchanged | ReservationStatus::Absent => {}
        ReservationStatus::Exists(description) => {
            set_condition(update(RESERVATION_CREATED, ConditionStatus::True, "Created", description.clone()));
        }
        ReservationStatus::Ended(description) => {
            set_condition(update(
                RESERVATION_CREATED,
                ConditionStatus::False,
                "NotExists",
                description.clone(),
            ));
        }
    }
    if matches!(observed.slurm, View::NoRestApi) {
        remove(&mut status.conditions, SLURM_REACHABLE);
    }
    if plan.reservation == ReservationStatus::Absent {
        remove(&mut status.conditions, RESERVATION_CREATED);
    }
    set_partition_held(&mut status, observed, now);
    summarize(&mut status, observed, plan, last_run, now);
    status
}

/// Whether the conditions stay as an earlier process wrote them: Slurm was not polled yet, and nothing else has changed.
fn is_unchanged_since_restart(
    status: &NodeSetStatus,
    observed: &Observed,
    plan: &Plan,
    last_run: &Execution,
) -> bool {
    let conditions = &status.conditions;
    observed.slurm.is_not_polled_yet()
        && observed.nodeset.status.as_ref() == Some(status)
        && find(conditions, READY).is_some()
        && !find(conditions, SLURM_REACHABLE).is_some_and(is_not_polled_yet)
        && *last_run == Execution::default()
        && (plan.obstacles.is_empty() || is_true(conditions, DEGRADED))
}

/// Whether a condition reports that Slurm was not polled yet.
fn is_not_polled_yet(condition: &Condition) -> bool {
    condition.reason == NOT_POLLED_YET
}

/// When the status changes although no event arrives.
pub fn status_changes_in(
    observed: &Observed,
    plan: &Plan,
    status: &NodeSetStatus,
    now: Timestamp,
) -> Option<Duration> {
    let left = degraded_in(observed, plan, status, now)?;
    Some(Duration::from_secs(1) + Duration::try_from(left).unwrap_or_default())
}

/// For how long a status write is postponed because one was `written` a moment ago; `None` if it is not.
pub fn postpone(
    written: Option<Timestamp>,
    before: Option<&NodeSetStatus>,
    after: &NodeSetStatus,
    now: Timestamp,
) -> Option<Duration> {
    let left = remaining(STATUS_PAUSE, written, now)?;
    changes_numbers_only(before, after).then_some(left)
}

/// Whether a status differs from the one before in numbers and messages only, so that its write can wait a moment.
fn changes_numbers_only(before: Option<&NodeSetStatus>, after: &NodeSetStatus) -> bool {
    let states = |status: &NodeSetStatus| {
        let conditions = status.conditions.iter();
        let conditions: Vec<_> = conditions
            .map(|condition| (condition.type_.clone(), condition.status.clone(), condition.reason.clone()))
            .collect();
        (status.observed_generation, conditions)
    };
    before.is_some_and(|before| states(before) == states(after))
}

/// Sets Ready, Progressing and Degraded. A NodeSet is ready while surplus workers are removed, and while an update waits for
/// an administrator or its scheduled time.
fn summarize(
    status: &mut NodeSetStatus,
    observed: &Observed,
    plan: &Plan,
    last_run: &Execution,
    now: Timestamp,
) {
    // Failures matter as long as writes are left.
    let idle = plan.effects.is_empty() && plan.node_mirrors.is_empty() && plan.pod_mirrors.is_empty();
    let nothing = Execution::default();
    let last_run = if idle { &nothing } else { last_run };
    let progress = Progress { observed, plan, last_run, status, now };
    let ready = progress.is_complete();
    let running = joined(progress.clauses());
    let is_progressing = running.is_some();
    let degraded = joined(degraded(observed, plan, last_run, status, now));
    let short = || Clause::new("Incomplete", "fewer workers are available than desired".to_owned());
    let not_ready = match (&degraded, &running) {
        (Some(clause), _) => Some(clause.clone()),
        (None, clause) if !ready => Some(clause.clone().unwrap_or_else(short)),
        (None, _) => None,
    };
    // Postponed operations are shown, but do not count as progress.
    let shown = joined(running.into_iter().chain(progress.postponed()).collect());
    let generation = observed.nodeset.metadata.generation;
    let ready_message = progress.ready_message();
    for (type_, holds, clause, as_expected) in [
        (READY, not_ready.is_none(), not_ready, ready_message.as_str()),
        (PROGRESSING, is_progressing, shown, NOT_PROGRESSING),
        (DEGRADED, degraded.is_some(), degraded, NOT_DEGRADED),
    ] {
        let Clause { reason, text } =
            clause.unwrap_or_else(|| Clause::new(AS_EXPECTED, as_expected.to_owned()));
        set(&mut status.conditions, update(type_, holds.into(), reason, text), generation, now);
    }
}

fn update(
    type_: &'static str,
    status: ConditionStatus,
    reason: &'static str,
    message: String,
) -> ConditionUpdate {
    ConditionUpdate { type_, status, reason, message }
}

fn count_pods(
    status: &mut NodeSetStatus,
    observed: &Observed,
    plan: &Plan,
    is_available: impl Fn(&Worker) -> bool,
) {
    let spec = &observed.nodeset.spec;
    let leaving = observed.nodeset.metadata.deletion_timestamp.is_some();
    let count = |counts: &dyn Fn(&Worker) -> bool| {
        to_i32(plan.workers.iter().filter(|worker| is_created(worker) && counts(worker)).count())
    };
    status.replicas = count(&|_| true);
    status.updated_replicas = count(&|worker| !worker.terminating && worker.hash == plan.revisions.hash);
    status.ready_replicas = count(&Worker::is_ready);
    status.available_replicas = count(&|worker| worker.is_ready() && is_available(worker));
    let numbered = spec.scaling_mode == ScalingMode::StatefulSet;
    status.desired = if numbered && !leaving { spec.replicas.max(0) } else { to_i32(plan.desired) };
    let expected = if numbered { status.replicas } else { status.desired };
    status.unavailable_replicas = (expected - status.available_replicas).max(0);
}

/// Whether the pod has a phase, which the API server sets when it is created.
fn is_created(worker: &Worker) -> bool {
    let phase = worker.pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.is_some_and(|phase| !phase.is_empty())
}

fn count_slurm_nodes(status: &mut NodeSetStatus, observed: &Observed, plan: &Plan) {
    let nodes: BTreeMap<&str, &Node> = match &observed.slurm {
        View::Unknown { .. } => return,
        View::NoRestApi => BTreeMap::new(),
        View::Known(known) => plan
            .workers
            .iter()
            .filter_map(|worker| known.snapshot.nodes.get(&worker.slurm_name))
            .map(|node| (node.name.as_str(), node))
            .collect(),
    };
    let count = |counts: &dyn Fn(&Node) -> bool| to_i32(nodes.values().filter(|node| counts(node)).count());
    let base = |node: &Node, state| slurm_state_names(node).first().is_some_and(|first| *first == state);
    status.slurm_idle = count(&|node| base(node, "Idle"));
    status.slurm_allocated = count(&|node| base(node, "Allocated") || base(node, "Mixed"));
    status.slurm_down = count(&|node| base(node, "Down"));
    status.slurm_drain = count(&|node| node.is(&NodeState::Drain) && !node.is(&NodeState::Undrain));
}

fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
