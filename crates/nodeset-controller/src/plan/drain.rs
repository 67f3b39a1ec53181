//! What takes a Slurm node out of service, whose word that is, and what of it is ours to end. Pure.

use super::cordon_reason::is_ours;
use super::effect::{Drain, Undo};
use crate::worker::Worker;
use slurm_rest::{Node, NodeState};

/// What slurmctld says of a node that it took out of service because its slurmd was silent.
const NOT_RESPONDING: &str = "Not responding";

/// What of ours keeps the node of a worker that should work from working.
pub fn undo(worker: &Worker, node: &Node) -> Option<Undo> {
    if !worker.is_healthy() || worker.cordoned_by_person {
        return None;
    }
    let drained = is_out(node);
    let down = node.is(&NodeState::Down);
    let name = node.name.clone();
    if is_ours(&node.reason) {
        let made_before = worker.created.zip(node.reason_changed_at).is_none_or(|(made, said)| made <= said);
        // A drain that was meant for the pod before this one ends when the slurmd of this one is there.
        let registered = has_registered_since(node) || made_before;
        return match (drained, down) {
            (_, true) if registered => Some(Undo::Resume(name)),
            (true, false) if registered => Some(Undo::Undrain(name)),
            _ => None,
        };
    }
    // Silent because its pod was gone, and now there is another one.
    let replaced = worker.began.zip(node.reason_changed_at).is_some_and(|(began, said)| began >= said);
    let silent = down && !drained && node.reason.contains(NOT_RESPONDING) && !is_foreign(node);
    (silent && replaced && has_registered_since(node)).then_some(Undo::Resume(name))
}

/// Whether a slurmd registered that started after the reason was given.
fn has_registered_since(node: &Node) -> bool {
    node.slurmd_start_time.zip(node.reason_changed_at).is_some_and(|(started, said)| started >= said)
}

/// Whether nobody else has a say about the node: no reason of theirs, and slurmctld does not miss it.
pub fn is_free(node: &Node) -> bool {
    (node.reason.is_empty() || is_ours(&node.reason))
        && !(node.is(&NodeState::Down) && node.reason.contains(NOT_RESPONDING))
}

/// Whether the reason of a node is neither ours nor slurmctld's own. What slurmctld added to a drain is all its own once
/// that drain is lifted.
pub fn is_foreign(node: &Node) -> bool {
    let reason = node.reason.as_str();
    let slurms = if is_out(node) { reason == NOT_RESPONDING } else { reason.ends_with(NOT_RESPONDING) };
    !(reason.is_empty() || is_ours(reason) || slurms)
}

/// Whether a drain keeps the node from getting jobs.
fn is_out(node: &Node) -> bool {
    node.is(&NodeState::Drain) && !node.is(&NodeState::Undrain)
}

/// The drain that a node lacks. It keeps the reason that somebody else gave.
pub fn drain(node: &Node, reason: &str) -> Option<Drain> {
    let reason = if is_foreign(node) { String::new() } else { reason.to_owned() };
    (!is_out(node)).then(|| Drain { node: node.name.clone(), reason })
}
