//! Writes that the API server or Slurm refused (a quota, an admission webhook, an invalid value), and when they are sent again.
//! Each attempt costs a live list of workers and Slurm nodes, and the cause may stay for ever: pauses double. Pure.

use crate::execute::{BatchOutcome, CREATION_OF_PODS, PlannedWrites, Report, mirror_name};
use crate::plan::{Effect, Undo};
use kube::ResourceExt;
use operator_runtime::backoff::delay;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The refused writes of one NodeSet, by the object that they are about.
#[derive(Debug, Default)]
pub struct Refusals {
    /// The generation of the NodeSet: another spec may be accepted.
    generation: Option<i64>,
    refused: BTreeMap<String, Refusal>,
}

#[derive(Debug)]
struct Refusal {
    failures: u32,
    until: Instant,
    /// Category and message, for the status.
    error: (&'static str, String),
}

impl Refusals {
    /// Removes the effects if all of them were refused and pause, and the mirrors that do. Returns the time until the first
    /// of the removed writes is sent again.
    ///
    /// Effects depend on one another, so they are removed together or not at all.
    pub fn hold_back(&mut self, writes: &mut PlannedWrites, now: Instant) -> Option<Duration> {
        let generation = writes.nodeset.metadata.generation;
        if self.generation != generation {
            *self = Self { generation, refused: BTreeMap::new() };
        }
        let name = writes.nodeset.name_any();
        let pause_of = |names: &[String]| {
            let refusals = names.iter().filter_map(|name| self.refused.get(name));
            refusals.map(|refusal| refusal.until.saturating_duration_since(now)).max()
        };
        let mut held = vec![];
        let pauses = writes.effects.iter().map(|effect| pause_of(&names_of(effect, &name)));
        let pauses: Vec<Duration> = pauses.map(Option::unwrap_or_default).collect();
        if pauses.iter().all(|pause| !pause.is_zero()) {
            held.extend(pauses.into_iter().min());
            writes.effects.clear();
        } else {
            // Slow start ends with the first refused create: the others come first.
            let is_refused =
                |effect: &Effect| effect.is_create() && pause_of(&names_of(effect, &name)).is_some();
            writes.effects.sort_by_key(is_refused);
        }
        writes.node_mirrors.retain(|mirror| {
            let pause = pause_of(&[mirror_name(mirror)]).unwrap_or_default();
            held.extend(Some(pause).filter(|pause| !pause.is_zero()));
            pause.is_zero()
        });
        held.into_iter().min()
    }

    /// Records the refusals of a run that began at `began`. Writes that were due and were not refused again are forgotten.
    pub fn record(&mut self, report: &Report, began: Instant, now: Instant, random: f64) {
        if !matches!(report.outcome, BatchOutcome::Performed { .. } | BatchOutcome::Idle) {
            return;
        }
        self.refused.retain(|name, refusal| refusal.until > began || report.refused.contains_key(name));
        for (name, error) in &report.refused {
            let failures = self.refused.get(name).map_or(0, |refusal| refusal.failures.saturating_add(1));
            let refusal = Refusal { failures, until: now + delay(failures, random), error: error.clone() };
            self.refused.insert(name.clone(), refusal);
        }
    }

    /// The errors of the refused writes: category and message.
    pub fn errors(&self) -> impl Iterator<Item = &(&'static str, String)> {
        self.refused.values().map(|refusal| &refusal.error)
    }
}

/// The objects that an effect is about, as its failures name them.
fn names_of(effect: &Effect, nodeset: &str) -> Vec<String> {
    let pod = |name: &str| format!("Pod {name}");
    let node = |name: &str| format!("Slurm node {name}");
    match effect {
        Effect::SetFinalizers { .. } => vec![format!("NodeSet {nodeset}")],
        Effect::AdoptPod { pod: reference, .. } | Effect::ReleasePod(reference) => vec![pod(&reference.name)],
        Effect::CreatePod(new) => {
            let claims = new.claims.iter().filter_map(|claim| claim.metadata.name.as_ref());
            let claims = claims.map(|name| format!("PersistentVolumeClaim {name}"));
            [CREATION_OF_PODS.to_owned(), pod(&new.name)].into_iter().chain(claims).collect()
        }
        Effect::Cordon { pod: reference, drain, .. } => {
            [pod(&reference.name)].into_iter().chain(drain.iter().map(|drain| node(&drain.node))).collect()
        }
        Effect::Drain(drain) => vec![node(&drain.node)],
        Effect::Uncordon { pod: reference, undo, .. } => {
            let undone = undo.iter().map(|(Undo::Undrain(name) | Undo::Resume(name))| node(name));
            [pod(&reference.name)].into_iter().chain(undone).collect()
        }
        Effect::DeletePod(deletion) => vec![pod(&deletion.pod.name)],
        Effect::SetClaimOwners { claim, .. } => vec![format!("PersistentVolumeClaim {claim}")],
        Effect::PutReservation(request) => vec![reservation(&request.name)],
        Effect::SetReservationNodes { name, .. } | Effect::DeleteReservation(name) => vec![reservation(name)],
        Effect::DeleteNodeRecord { node: name, .. } => vec![node(name)],
    }
}

fn reservation(name: &str) -> String {
    format!("Slurm reservation {name}")
}

#[cfg(test)]
mod tests;
