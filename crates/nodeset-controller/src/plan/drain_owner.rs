//! Who took a Slurm node out of service, and whether the operator may put it back.

use super::drain_reason::is_ours;
use super::effect::{Drain, Undo};
use crate::worker::Worker;
use slurm_rest::{Node, NodeState};

/// The reason that slurmctld gives a node that it set down because its slurmd did not respond.
const NOT_RESPONDING: &str = "Not responding";
/// The reason that slurmctld gives a node that it set down because its slurmd registered from a machine that booted since
/// the last registration: it rebooted, or the worker was replaced and runs on another machine.
const REBOOTED: &str = "Node unexpectedly rebooted";

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
    let was_replaced = match (slurmctlds_reason(node), worker.containers_started_at) {
        // Down because its previous pod was deleted, and a new pod has started since.
        (Some(NOT_RESPONDING), Some(started)) => {
            node.reason_changed_at.is_some_and(|down| started >= down) && has_registered_since(node)
        }
        // After a reboot of its machine the containers of a pod are restarted, and have no start time here.
        (Some(_), Some(_)) => !node.is(&NodeState::NotResponding),
        (None, _) | (_, None) => false,
    };
    (down && !drained && was_replaced).then_some(Undo::Resume(name))
}

/// Whether a slurmd registered that started after the reason was set.
fn has_registered_since(node: &Node) -> bool {
    node.slurmd_start_time.zip(node.reason_changed_at).is_some_and(|(started, changed)| started >= changed)
}

/// Whether the operator may drain the node: the reason is empty or ours, and slurmctld did not set it down by itself.
pub fn may_drain(node: &Node) -> bool {
    (node.reason.is_empty() || is_ours(&node.reason))
        && !(node.is(&NodeState::Down) && slurmctlds_reason(node).is_some())
}

/// Whether the reason of a node is neither ours nor slurmctld's own. slurmctld appends its reason to that of a drain;
/// once the drain is lifted, the whole text counts as its own.
pub fn is_foreign(node: &Node) -> bool {
    let reason = node.reason.as_str();
    let is_slurmctlds = slurmctlds_reason(node).is_some_and(|own| !has_drain(node) || reason == own);
    !(reason.is_empty() || is_ours(reason) || is_slurmctlds)
}

/// The reason that slurmctld set or appended when it set the node down by itself.
fn slurmctlds_reason(node: &Node) -> Option<&'static str> {
    [NOT_RESPONDING, REBOOTED].into_iter().find(|own| node.reason.ends_with(own))
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
