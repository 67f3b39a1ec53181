//! Finds the NodeSets with which slurmctld refuses a configuration, by trying: its messages are written for people.
//!
//! When a check pod refuses a configuration, every NodeSet whose lines it changes becomes suspect and keeps its lines in
//! force, so that the other changes go on. Then the suspects are tried one at a time. Refusals are kept in memory: after a
//! restart of this process the NodeSets are tried again.

use super::config::Desired;
use super::rollout::Decision;
use crate::build::{RefusedLines, RefusedNodeSets};
use std::time::Duration;

/// Renders with these refusals. As long as the result is in force, the next suspect is tried; returns the refusals that are
/// left.
pub fn retried<E>(
    refusals: &RefusedNodeSets,
    render: impl Fn(&RefusedNodeSets) -> Result<(Desired, bool), E>,
) -> Result<(Desired, RefusedNodeSets), E> {
    let mut refusals = refusals.clone();
    loop {
        let (desired, is_in_force) = render(&refusals)?;
        let suspect = refusals.iter().find(|(_, refusal)| refusal.reason.is_none()).map(|(name, _)| name);
        match suspect.cloned() {
            Some(suspect) if is_in_force => drop(refusals.remove(&suspect)),
            _ => return Ok((desired, refusals)),
        }
    }
}

/// Adds the NodeSets to the refusals that a refused configuration changes. Then the next reconcile renders another one.
pub fn refusals_after(refusals: &mut RefusedNodeSets, desired: &Desired, decision: Decision) -> Decision {
    let Decision::Refuse(reason) = &decision else { return decision };
    let changed = &desired.changed_node_sets;
    if changed.is_empty() {
        return decision;
    }
    let is_only_change = changed.len() == 1 && desired.changes_node_sets_only;
    for (name, lines) in changed {
        let reason = is_only_change.then(|| reason.clone());
        refusals.insert(name.clone(), RefusedLines { lines: lines.clone(), reason });
    }
    Decision::Settle(Duration::ZERO)
}
