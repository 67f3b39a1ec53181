//! Events about condition transitions.

use crate::observe::NOT_POLLED_YET;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use operator_runtime::events::{EventType, NewEvent};
use slinky_api::conditions::{
    ConditionStatus, DEGRADED, PARTITION_HELD, READY, RESERVATION_CREATED, SLURM_REACHABLE, find, is_true,
};
use slinky_api::v1beta1::NodeSetStatus;

/// The conditions whose transitions are published. Progressing is not: it changes often, and operations have Events of
/// their own.
const PUBLISHED: [&str; 5] = [READY, DEGRADED, SLURM_REACHABLE, RESERVATION_CREATED, PARTITION_HELD];

/// The Events for conditions that changed from one status of a NodeSet to the next.
pub fn condition_events(before: Option<&NodeSetStatus>, after: &NodeSetStatus) -> Vec<NewEvent> {
    transitions(before, after).into_iter().map(event).collect()
}

/// Conditions with another status than before, with a new reason to be degraded, or with a changed reservation.
fn transitions<'a>(before: Option<&NodeSetStatus>, after: &'a NodeSetStatus) -> Vec<&'a Condition> {
    let is_transition = |condition: &&Condition| {
        let was = before.and_then(|status| find(&status.conditions, &condition.type_));
        // A new NodeSet is not ready, not degraded, and its Slurm answers: that is no transition.
        let initial = if condition.type_ == SLURM_REACHABLE { "True" } else { "False" };
        let changed = was.map_or(initial, |was| status_of(was, initial)) != status_of(condition, initial);
        let detail = was.is_some_and(|was| match condition.type_.as_str() {
            DEGRADED => was.reason != condition.reason,
            RESERVATION_CREATED => was.message != condition.message,
            _ => false,
        });
        changed || (detail && is_true(&after.conditions, &condition.type_))
    };
    let conditions = PUBLISHED.into_iter().filter_map(|type_| find(&after.conditions, type_));
    conditions.filter(is_transition).collect()
}

/// The status of a condition; the initial one while Slurm was not polled yet.
fn status_of<'a>(condition: &'a Condition, initial: &'a str) -> &'a str {
    if condition.reason == NOT_POLLED_YET { initial } else { &condition.status }
}

fn event(condition: &Condition) -> NewEvent {
    NewEvent {
        type_: if is_desired(condition) { EventType::Normal } else { EventType::Warning },
        reason: condition.reason.clone(),
        action: condition.type_.clone(),
        note: condition.message.clone(),
        related: None,
    }
}

/// Whether a condition has the status that it should have. Both statuses of `PartitionHeld` are fine.
fn is_desired(condition: &Condition) -> bool {
    let is_true = condition.status == ConditionStatus::True.as_str();
    match condition.type_.as_str() {
        DEGRADED => !is_true,
        PARTITION_HELD => true,
        _ => is_true,
    }
}

#[cfg(test)]
mod tests;
