//! What a NodeSet's status says. No I/O. What pods are like is always told; what Slurm nodes are like stays as it was while
//! nothing certain is known of Slurm. A process that has only just come to ask says nothing new of Slurm at all.

mod degraded;
mod message;
mod partition;
mod progress;

use crate::observe::Observed;
use crate::plan::{Plan, ReservationStatus, slurm_state_names};
use crate::slurm::View;
use crate::worker::Worker;
use crate::world::left_of;
use degraded::{becomes_trouble, degraded};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use message::{Part, joined};
use partition::tell_partition;
use progress::{CREATING, Progress};
use slinky_api::conditions::{
    AS_EXPECTED, ConditionStatus, ConditionUpdate, DEGRADED, PARTITION_HELD, PROGRESSING, READY,
    RESERVATION_CREATED, SLURM_REACHABLE, find, is_true, remove, set,
};
use slinky_api::labels::{selector_labels, to_selector};
use slinky_api::v1beta1::{NodeSet, NodeSetStatus, ScalingMode};
use slurm_rest::{Node, NodeState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Reason while Slurm should answer and does not.
const NOT_ANSWERING: &str = "NotAnswering";
/// Reason while Slurm had no time to answer.
const NOT_ASKED_YET: &str = "NotAskedYet";
/// How often a status is written at most while only its numbers change: every pod that starts changes some.
const PAUSE: Duration = Duration::from_secs(1);

/// What became of the writes of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectsState {
    /// What failed: a fixed name, and the details.
    pub errors: Vec<(&'static str, String)>,
    /// Why the rest has to wait, if it has to.
    pub waiting: Option<String>,
}

/// The status after a pass.
pub fn status(observed: &Observed, plan: &Plan, effects: &EffectsState, now: Timestamp) -> NodeSetStatus {
    let nodeset = &observed.nodeset;
    let mut status = nodeset.status.clone().unwrap_or_default();
    count_pods(&mut status, observed, plan, |worker| worker.is_available(plan.min_ready, now));
    count_slurm_nodes(&mut status, observed, plan);
    status.observed_generation = nodeset.metadata.generation;
    status.node_set_hash.clone_from(&plan.revisions.hash);
    status.collision_count = Some(plan.revisions.collision_count);
    status.ordinal_to_node = plan.pins.clone().filter(|pins| !pins.is_empty());
    status.selector = to_selector(&selector_labels(nodeset.as_ref()));
    if is_said_already(&status, observed, plan, effects) {
        return status;
    }

    let is_new = status.conditions.is_empty();
    let mut tell = |verdict| set(&mut status.conditions, verdict, nodeset.metadata.generation, now);
    match &observed.slurm {
        View::NotExpected => {}
        View::Unknown { overdue: false, .. } if !is_new => {}
        View::Unknown { why, overdue } => {
            let reason = if *overdue { NOT_ANSWERING } else { NOT_ASKED_YET };
            tell(verdict(SLURM_REACHABLE, ConditionStatus::Unknown, reason, why.clone()));
        }
        View::Known(_) => {
            tell(verdict(SLURM_REACHABLE, ConditionStatus::True, "Answering", String::new()));
        }
    }
    match &plan.reservation {
        ReservationStatus::Unchanged | ReservationStatus::Absent => {}
        ReservationStatus::Exists(wish) => {
            tell(verdict(RESERVATION_CREATED, ConditionStatus::True, "Created", wish.clone()));
        }
        ReservationStatus::Ended(wish) => {
            tell(verdict(RESERVATION_CREATED, ConditionStatus::False, "NotExists", wish.clone()));
        }
    }
    if matches!(observed.slurm, View::NotExpected) {
        remove(&mut status.conditions, SLURM_REACHABLE);
    }
    if plan.reservation == ReservationStatus::Absent {
        remove(&mut status.conditions, RESERVATION_CREATED);
    }
    tell_partition(&mut status, observed, now);
    summarise(&mut status, observed, plan, effects, now);
    status
}

/// Whether all conditions still hold as an earlier process left them: Slurm had no time to tell anything, and nothing else
/// is new.
fn is_said_already(status: &NodeSetStatus, observed: &Observed, plan: &Plan, effects: &EffectsState) -> bool {
    let conditions = &status.conditions;
    observed.slurm.is_not_polled_yet()
        && observed.nodeset.status.as_ref() == Some(status)
        && find(conditions, READY).is_some()
        && !find(conditions, SLURM_REACHABLE).is_some_and(is_not_polled_yet)
        && *effects == EffectsState::default()
        && (plan.obstacles.is_empty() || is_true(conditions, DEGRADED))
}

/// Whether a condition says that Slurm had no time to answer.
fn is_not_polled_yet(condition: &Condition) -> bool {
    condition.reason == NOT_ASKED_YET
}

/// Whether the status of a NodeSet as it is says that workers are being made.
pub fn is_creating(nodeset: &NodeSet) -> bool {
    let conditions = nodeset.status.iter().flat_map(|status| &status.conditions);
    let mut progress = conditions.filter(|condition| condition.type_ == PROGRESSING);
    progress.any(|condition| {
        condition.reason == CREATING && condition.observed_generation == nodeset.metadata.generation
    })
}

/// When to look again because the status will say something else then, although nothing happens.
pub fn again(observed: &Observed, plan: &Plan, status: &NodeSetStatus, now: Timestamp) -> Option<Duration> {
    let left = becomes_trouble(observed, plan, status, now)?;
    Some(Duration::from_secs(1) + Duration::try_from(left).unwrap_or_default())
}

/// For how long a status can wait because one was `written` a moment ago; `None` if it cannot.
pub fn put_off(
    written: Option<Timestamp>,
    before: Option<&NodeSetStatus>,
    after: &NodeSetStatus,
    now: Timestamp,
) -> Option<Duration> {
    let left = left_of(PAUSE, written, now)?;
    can_wait(before, after).then_some(left)
}

/// Whether a status tells only other numbers and details than the one before, so that nobody minds to read it a moment
/// later.
fn can_wait(before: Option<&NodeSetStatus>, after: &NodeSetStatus) -> bool {
    let told = |status: &NodeSetStatus| {
        let conditions = status.conditions.iter();
        let conditions: Vec<_> = conditions
            .map(|condition| (condition.type_.clone(), condition.status.clone(), condition.reason.clone()))
            .collect();
        (status.observed_generation, conditions)
    };
    before.is_some_and(|before| told(before) == told(after))
}

/// Sets the conditions that every kind has. A NodeSet may be ready while surplus workers leave, and while an update waits
/// for a person or for its time.
fn summarise(
    status: &mut NodeSetStatus,
    observed: &Observed,
    plan: &Plan,
    effects: &EffectsState,
    now: Timestamp,
) {
    // What failed matters as long as something is left to do.
    let idle = plan.effects.is_empty() && plan.node_mirrors.is_empty() && plan.pod_mirrors.is_empty();
    let nothing = EffectsState::default();
    let effects = if idle { &nothing } else { effects };
    let progress = Progress { observed, plan, effects, status, now };
    let ready = progress.is_complete();
    let under_way = joined(progress.parts());
    let is_progressing = under_way.is_some();
    let degraded = joined(degraded(observed, plan, effects, status, now));
    let short = || Part::new("Incomplete", "fewer workers serve than wanted".to_owned());
    let not_ready = match (&degraded, &under_way) {
        (Some(part), _) => Some(part.clone()),
        (None, part) if !ready => Some(part.clone().unwrap_or_else(short)),
        (None, _) => None,
    };
    // What waits for a person, or for its time, is told, but is not under way.
    let told = joined(under_way.into_iter().chain(progress.postponed()).collect());
    let generation = observed.nodeset.metadata.generation;
    for (type_, holds, part) in [
        (READY, not_ready.is_none(), not_ready),
        (PROGRESSING, is_progressing, told),
        (DEGRADED, degraded.is_some(), degraded),
    ] {
        let Part { reason, text } = part.unwrap_or_else(|| Part::new(AS_EXPECTED, String::new()));
        set(&mut status.conditions, verdict(type_, holds.into(), reason, text), generation, now);
    }
}

fn verdict(
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

/// Whether somebody has looked at the pod since the API server took it in.
fn is_created(worker: &Worker) -> bool {
    let phase = worker.pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.is_some_and(|phase| !phase.is_empty())
}

fn count_slurm_nodes(status: &mut NodeSetStatus, observed: &Observed, plan: &Plan) {
    let nodes: BTreeMap<&str, &Node> = match &observed.slurm {
        View::Unknown { .. } => return,
        View::NotExpected => BTreeMap::new(),
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

/// Conditions worth an Event: those whose status is another one than before, a new kind of trouble, and a reservation that
/// was moved. What is under way changes too often, and is told as it is done.
pub fn news<'a>(before: Option<&NodeSetStatus>, after: &'a NodeSetStatus) -> Vec<&'a Condition> {
    let is_news = |condition: &&Condition| {
        let was = before.and_then(|status| find(&status.conditions, &condition.type_));
        // Nobody needs to be told that something new is not ready, or works as it should.
        let usual = if condition.type_ == SLURM_REACHABLE { "True" } else { "False" };
        let changed = was.map_or(usual, |was| told(was, usual)) != told(condition, usual);
        let detail = was.is_some_and(|was| match condition.type_.as_str() {
            DEGRADED => was.reason != condition.reason,
            RESERVATION_CREATED => was.message != condition.message,
            _ => false,
        });
        changed || (detail && is_true(&after.conditions, &condition.type_))
    };
    [READY, DEGRADED, SLURM_REACHABLE, RESERVATION_CREATED, PARTITION_HELD]
        .into_iter()
        .filter_map(|type_| find(&after.conditions, type_))
        .filter(is_news)
        .collect()
}

/// Whether what a condition says is as it should be. A partition that is held is, and so is one that may go.
pub fn is_good(condition: &Condition) -> bool {
    let holds = condition.status == ConditionStatus::True.as_str();
    match condition.type_.as_str() {
        DEGRADED => !holds,
        PARTITION_HELD => true,
        _ => holds,
    }
}

/// The status of a condition; the usual one where nobody could tell yet.
fn told<'a>(condition: &'a Condition, usual: &'a str) -> &'a str {
    if is_not_polled_yet(condition) { usual } else { &condition.status }
}

#[cfg(test)]
mod tests;
