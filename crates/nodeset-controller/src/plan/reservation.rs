//! When the reservation in which a NodeSet is updated is made, changed and deleted.
//!
//! The finalizer says whose it is: it is taken while Slurm has no reservation of that name, and given back when it has none
//! any more. The condition remembers which desired was fulfilled, so that what Slurm ended is not made again and what Slurm
//! shows in its own way is not changed for ever.

mod desired;

pub use desired::ScheduleError;

use super::effect::Effect;
use super::update::reservation_name;
use crate::observe::{Observed, is_update_scheduled, needs_reservations, owns_reservation};
use crate::slurm::{Known, View};
use crate::worker::Worker;
use desired::{DesiredReservation, describe};
use jiff::Timestamp;
use kube::ResourceExt;
use slinky_api::conditions::{self, RESERVATION_CREATED};
use slinky_api::labels::{RESERVATION_FINALIZER, WORKERS_FINALIZER};
use slinky_api::v1beta1::NodeSet;
use slurm_rest::Reservation;
use std::collections::BTreeSet;

/// What the decision depends on.
pub struct Schedule<'a> {
    /// The NodeSet and what is known of Slurm.
    pub observed: &'a Observed,
    /// Its workers.
    pub workers: &'a [Worker],
    /// How many there should be.
    pub desired: usize,
    /// The hash of its current revision.
    pub hash: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// What to do about the reservation.
#[derive(Debug, Default)]
pub struct ReservationPlan {
    /// What to do.
    pub effects: Vec<Effect>,
    /// Whether the finalizer has to be taken first.
    pub needs_finalizer: bool,
    /// Why it is not as the spec asks for.
    pub obstacle: Option<ScheduleError>,
    /// What to tell of it.
    pub status: ReservationStatus,
}

/// What the status tells of the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReservationStatus {
    /// What it said before: nothing else is known.
    #[default]
    Unchanged,
    /// Nothing.
    Absent,
    /// That Slurm has it, and which desired it fulfils.
    Exists(String),
    /// That Slurm had it.
    Ended(String),
}

/// What is known of the reservation.
enum Seen<'a> {
    Unknown,
    Absent,
    Present(&'a Reservation),
}

impl Schedule<'_> {
    /// Decides. A NodeSet that is being deleted gives its reservation up at its very end, with everything else.
    pub fn decide(&self) -> ReservationPlan {
        let nodeset = &self.observed.nodeset;
        if !needs_reservations(nodeset) || nodeset.metadata.deletion_timestamp.is_some() {
            return ReservationPlan { status: ReservationStatus::Absent, ..ReservationPlan::default() };
        }
        if !is_update_scheduled(nodeset) || self.desired == 0 {
            return self.give_up();
        }
        match DesiredReservation::of(nodeset) {
            Ok(desired) => self.pursue(&desired),
            Err(error) => ReservationPlan { obstacle: Some(error), ..ReservationPlan::default() },
        }
    }

    fn pursue(&self, desired: &DesiredReservation) -> ReservationPlan {
        match self.seen() {
            Seen::Unknown => ReservationPlan::default(),
            Seen::Absent => {
                let told = self.remembered().map_or(ReservationStatus::Absent, |desired| {
                    ReservationStatus::Ended(desired.to_owned())
                });
                ReservationPlan { status: told, ..self.make(desired) }
            }
            Seen::Present(found) if self.is_ours() => {
                let remembered = self.remembered().unwrap_or_default();
                let message = if desired.is_fulfilled_by(found, remembered) {
                    desired.to_string()
                } else if remembered.is_empty() {
                    describe(found)
                } else {
                    remembered.to_owned()
                };
                ReservationPlan { status: ReservationStatus::Exists(message), ..self.keep(desired, found) }
            }
            Seen::Present(found) => ReservationPlan {
                obstacle: Some(ScheduleError::NameTaken(found.name.clone())),
                status: ReservationStatus::Absent,
                ..ReservationPlan::default()
            },
        }
    }

    /// Makes a reservation that is not there. One whose start is forced is made once: Slurm never ends it by itself.
    fn make(&self, desired: &DesiredReservation) -> ReservationPlan {
        let made_before =
            desired.start() < self.now && self.remembered() == Some(desired.to_string().as_str());
        if made_before || !desired.may_be_made(self.now) {
            let outdated = self.workers.iter().any(|worker| worker.is_alive() && worker.hash != self.hash);
            let obstacle = outdated.then(|| ScheduleError::Passed(desired.start()));
            return ReservationPlan { obstacle, ..ReservationPlan::default() };
        }
        self.held(|| Some(Effect::PutReservation(Box::new(desired.request(self.nodes(&BTreeSet::new())?)))))
    }

    /// Changes a reservation of ours that is not as it should be, as far as Slurm takes changes.
    fn keep(&self, desired: &DesiredReservation, found: &Reservation) -> ReservationPlan {
        // What was found is written down first, and what has ended is Slurm's to clear away.
        let Some(remembered) = self.remembered() else { return self.held(|| None) };
        if found.end_time.is_some_and(|end| end <= self.now) {
            return ReservationPlan::default();
        }
        let reserved: BTreeSet<_> = found.node_names().unwrap_or_default().into_iter().collect();
        let another = !desired.is_fulfilled_by(found, remembered) && remembered != desired.to_string();
        let start = desired.next_start(found, remembered);
        let is_late = another && !found.is_active(self.now) && start < self.now;
        let plan = self.held(|| {
            let nodes = self.nodes(&reserved)?;
            if another && !found.is_active(self.now) && !is_late {
                return Some(Effect::PutReservation(Box::new(desired.change(found, start, nodes))));
            }
            let differs = !nodes.iter().eq(&reserved);
            differs.then(|| Effect::SetReservationNodes { name: found.name.clone(), nodes })
        });
        ReservationPlan { obstacle: is_late.then(|| ScheduleError::Passed(start)), ..plan }
    }

    /// Deletes what is ours; the finalizer goes when it is gone, and the strategy with it.
    fn give_up(&self) -> ReservationPlan {
        let seen = self.seen();
        let is_dispensable = self.holds(RESERVATION_FINALIZER) || matches!(seen, Seen::Absent);
        let effect = match seen {
            Seen::Present(found) if self.is_ours() => Some(Effect::DeleteReservation(found.name.clone())),
            Seen::Absent if !is_update_scheduled(&self.observed.nodeset) => self.release(),
            Seen::Present(_) | Seen::Absent | Seen::Unknown => None,
        };
        // As long as nothing else says whose it is, the condition does.
        let told = if is_dispensable { ReservationStatus::Absent } else { ReservationStatus::Unchanged };
        ReservationPlan { effects: effect.into_iter().collect(), status: told, ..ReservationPlan::default() }
    }

    /// An effect that needs the finalizer first. That is taken if there is something to reserve.
    fn held(&self, effect: impl FnOnce() -> Option<Effect>) -> ReservationPlan {
        if self.holds(RESERVATION_FINALIZER) {
            return ReservationPlan { effects: effect().into_iter().collect(), ..ReservationPlan::default() };
        }
        ReservationPlan {
            needs_finalizer: self.nodes(&BTreeSet::new()).is_some(),
            ..ReservationPlan::default()
        }
    }

    /// Gives the finalizer back. Such a write names all finalizers, so the one for workers comes first.
    fn release(&self) -> Option<Effect> {
        let held = self.observed.nodeset.finalizers().iter();
        let finalizers = held.filter(|name| *name != RESERVATION_FINALIZER).cloned().collect();
        let is_held = self.holds(RESERVATION_FINALIZER) && self.holds(WORKERS_FINALIZER);
        is_held.then_some(Effect::SetFinalizers { finalizers })
    }

    fn holds(&self, finalizer: &str) -> bool {
        holds(&self.observed.nodeset, finalizer)
    }

    fn is_ours(&self) -> bool {
        owns_reservation(&self.observed.nodeset)
    }

    fn remembered(&self) -> Option<&str> {
        remembered(&self.observed.nodeset)
    }

    fn seen(&self) -> Seen<'_> {
        let reservations = match &self.observed.slurm {
            View::NotExpected => return Seen::Absent,
            View::Unknown { .. } => None,
            View::Known(known) => known.snapshot.reservations.as_ref(),
        };
        let name = reservation_name(&self.observed.nodeset);
        let Some(reservations) = reservations else { return Seen::Unknown };
        reservations
            .values()
            .find(|reservation| reservation.name.eq_ignore_ascii_case(&name))
            .map_or(Seen::Absent, Seen::Present)
    }

    /// The nodes to reserve, sorted: those of the workers, and those of workers that are being replaced. `None` if there are
    /// none, or if it is not certain which there are.
    fn nodes(&self, reserved: &BTreeSet<String>) -> Option<Vec<String>> {
        let View::Known(Known { snapshot, uncertain, .. }) = &self.observed.slurm else { return None };
        let names = self.workers.iter().map(|worker| &worker.slurm_name);
        let (registered, missing): (BTreeSet<_>, BTreeSet<_>) =
            names.partition(|name| snapshot.nodes.contains_key(*name));
        if missing.iter().any(|name| uncertain.contains(*name)) {
            return None;
        }
        let replaced = reserved.iter().filter(|name| snapshot.nodes.contains_key(*name));
        let replaced = replaced.take(if self.workers.len() < self.desired { usize::MAX } else { 0 });
        let nodes: BTreeSet<_> = registered.into_iter().chain(replaced).collect();
        (!nodes.is_empty()).then(|| nodes.into_iter().cloned().collect())
    }
}

fn holds(nodeset: &NodeSet, finalizer: &str) -> bool {
    nodeset.finalizers().iter().any(|name| name == finalizer)
}

/// The desired that was last seen fulfilled. Empty if there was one and nobody wrote down which.
fn remembered(nodeset: &NodeSet) -> Option<&str> {
    let condition = conditions::find(&nodeset.status.as_ref()?.conditions, RESERVATION_CREATED)?;
    Some(condition.message.as_str())
}

#[cfg(test)]
mod tests;
