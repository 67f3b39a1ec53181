//! Who took a Slurm node out of service, and whether the operator may put it back.

use super::drain_reason::is_ours;
use super::effect::{Drain, Undo};
use crate::worker::Worker;
use slurm_rest::{Node, NodeState};

/// The reason that slurmctld gives a node that it set down because its slurmd did not respond.
const NOT_RESPONDING: &str = "Not responding";

/// The write that puts the node of a kept worker back in service, if the operator took it out.
pub fn undo(worker: &Worker, node: &Node) -> Option<Undo> {
    if !worker.is_healthy() || worker.cordoned_by_person {
        return None;
    }
    let drained = has_drain(node);
    let down = node.is(&NodeState::Down);
    let name = node.name.clone();
    if is_ours(&node.reason) {
        let created_before =
            worker.created.zip(node.reason_changed_at).is_none_or(|(created, drained)| created <= drained);
        // A drain for the previous pod of that name ends when the slurmd of this pod has registered.
        let registered = has_registered_since(node) || created_before;
        return match (drained, down) {
            (_, true) if registered => Some(Undo::Resume(name)),
            (true, false) if registered => Some(Undo::Undrain(name)),
            _ => None,
        };
    }
    // Down because its previous pod was deleted, and a new pod has started since.
    let replaced = worker
        .containers_started_at
        .zip(node.reason_changed_at)
        .is_some_and(|(started, down)| started >= down);
    let not_responding = down && !drained && node.reason.contains(NOT_RESPONDING) && !is_foreign(node);
    (not_responding && replaced && has_registered_since(node)).then_some(Undo::Resume(name))
}

/// Whether a slurmd registered that started after the reason was set.
fn has_registered_since(node: &Node) -> bool {
    node.slurmd_start_time.zip(node.reason_changed_at).is_some_and(|(started, changed)| started >= changed)
}

/// Whether the operator may drain the node: the reason is empty or ours, and slurmctld did not set it down as not
/// responding.
pub fn may_drain(node: &Node) -> bool {
    (node.reason.is_empty() || is_ours(&node.reason))
        && !(node.is(&NodeState::Down) && node.reason.contains(NOT_RESPONDING))
}

/// Whether the reason of a node is neither ours nor slurmctld's own. slurmctld appends its reason to that of a drain;
/// once the drain is lifted, the whole text counts as its own.
pub fn is_foreign(node: &Node) -> bool {
    let reason = node.reason.as_str();
    let is_slurmctlds =
        if has_drain(node) { reason == NOT_RESPONDING } else { reason.ends_with(NOT_RESPONDING) };
    !(reason.is_empty() || is_ours(reason) || is_slurmctlds)
}

/// Whether the node is drained and not being undrained.
fn has_drain(node: &Node) -> bool {
    node.is(&NodeState::Drain) && !node.is(&NodeState::Undrain)
}

/// The drain of a node that has none. A foreign reason is kept.
pub fn drain(node: &Node, reason: &str) -> Option<Drain> {
    let reason = if is_foreign(node) { String::new() } else { reason.to_owned() };
    (!has_drain(node)).then(|| Drain { node: node.name.clone(), reason })
}
