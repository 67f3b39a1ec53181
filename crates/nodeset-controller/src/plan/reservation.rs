//! When the reservation in which a NodeSet is updated is created, changed and deleted.
//!
//! The finalizer marks the reservation as ours: it is added while Slurm has no reservation of that name, and removed
//! when Slurm has none any more. An annotation records the desired reservation that Slurm was last seen with, so that a
//! reservation that Slurm has ended is not created again, and one that Slurm shows differently is not changed forever.
//!
//! The annotation is patched before the `ReservationCreated` condition is written. After a crash between the two, the
//! annotation alone is a complete record, and the next reconcile writes the condition. In the other order a condition
//! without record would remain, and a forced reservation that a person has deleted would be created again. When both
//! are removed, a crash leaves the condition: the reservation still counts as ours, and the next reconcile removes the
//! condition too.

mod desired;

mod record;

pub use desired::ScheduleError;
pub use record::RecordChange;

use super::effect::Effect;
use crate::observe::{Observed, is_update_scheduled, needs_reservations, owns_reservation};
use crate::slurm::{Known, View};
use crate::worker::Worker;
use desired::DesiredReservation;
use jiff::Timestamp;
use kube::ResourceExt;
use record::{Recorded, ReservationRecord};
use slinky_api::labels::{RESERVATION_FINALIZER, WORKERS_FINALIZER};
use slinky_api::v1beta1::NodeSet;
use slurm_rest::Reservation;
use std::collections::BTreeSet;

/// Inputs of the decision.
pub struct Schedule<'a> {
    /// The NodeSet and the state of Slurm.
    pub observed: &'a Observed,
    /// Its workers.
    pub workers: &'a [Worker],
    /// Desired number of workers.
    pub desired: usize,
    /// The hash of its current revision.
    pub hash: &'a str,
    /// Current time.
    pub now: Timestamp,
}

/// The decision about the reservation.
#[derive(Debug, Default)]
pub struct ReservationPlan {
    /// Effects on the reservation and its finalizer.
    pub effects: Vec<Effect>,
    /// Whether the finalizer must be added first.
    pub needs_finalizer: bool,
    /// Why the reservation does not follow the spec.
    pub obstacle: Option<ScheduleError>,
    /// State of the reservation for the status.
    pub status: ReservationStatus,
    /// Change of the record.
    pub record: RecordChange,
}

/// The state of the reservation that the status reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReservationStatus {
    /// As reported before: the state is unknown.
    #[default]
    Unchanged,
    /// There is none: the condition is removed.
    Absent,
    /// Slurm has it; described for people.
    Exists(String),
    /// Slurm had it; described for people.
    Ended(String),
}

/// The reservation in Slurm.
enum Live<'a> {
    Unknown,
    Absent,
    Present(&'a Reservation),
}

impl ReservationPlan {
    /// Without reservation: neither condition nor record.
    fn absent() -> Self {
        Self { status: ReservationStatus::Absent, record: RecordChange::Remove, ..Self::default() }
    }
}

impl Schedule<'_> {
    /// Decides. A NodeSet that is being deleted keeps its reservation until its finalizers are removed.
    pub fn decide(&self) -> ReservationPlan {
        let nodeset = &self.observed.nodeset;
        if !needs_reservations(nodeset) || nodeset.metadata.deletion_timestamp.is_some() {
            return ReservationPlan::absent();
        }
        if !is_update_scheduled(nodeset) || self.desired == 0 {
            return self.remove();
        }
        match DesiredReservation::of(nodeset) {
            Ok(desired) => self.reconcile(&desired),
            Err(error) => ReservationPlan { obstacle: Some(error), ..ReservationPlan::default() },
        }
    }

    fn reconcile(&self, desired: &DesiredReservation) -> ReservationPlan {
        match self.live() {
            Live::Unknown => ReservationPlan::default(),
            Live::Absent => {
                let name = reservation_name(&self.observed.nodeset);
                let status = self.recorded().map_or(ReservationStatus::Absent, |recorded| {
                    ReservationStatus::Ended(recorded.describe(&name))
                });
                ReservationPlan { status, ..self.create(desired) }
            }
            Live::Present(found) if self.is_ours() => {
                let recorded = self.recorded().unwrap_or(Recorded::Unknown);
                let record = match recorded {
                    _ if desired.is_fulfilled_by(found, &recorded) => desired.record(),
                    Recorded::Unknown => ReservationRecord::of(found),
                    Recorded::Known(record) => record,
                };
                ReservationPlan {
                    status: ReservationStatus::Exists(record.to_string()),
                    record: RecordChange::Set(record),
                    ..self.update(desired, found)
                }
            }
            Live::Present(found) => ReservationPlan {
                obstacle: Some(ScheduleError::NameTaken(found.name.clone())),
                ..ReservationPlan::absent()
            },
        }
    }

    /// Creates a missing reservation. One with a past start (`FORCE_START`) is created once: it repeats, so Slurm never
    /// ends it by itself, and a person must have deleted it.
    fn create(&self, desired: &DesiredReservation) -> ReservationPlan {
        let was_created = desired.start() < self.now && self.recorded() == Some(desired.as_recorded());
        if was_created || !desired.can_be_created(self.now) {
            let outdated = self.workers.iter().any(|worker| worker.is_alive() && worker.hash != self.hash);
            let obstacle = outdated.then(|| ScheduleError::Passed(desired.start()));
            return ReservationPlan { obstacle, ..ReservationPlan::default() };
        }
        self.with_finalizer(|| {
            Some(Effect::PutReservation(Box::new(desired.request(self.nodes(&BTreeSet::new())?))))
        })
    }

    /// Changes a reservation of ours that differs from the desired one, as far as Slurm accepts changes.
    fn update(&self, desired: &DesiredReservation, found: &Reservation) -> ReservationPlan {
        // The record is written before the first change. Slurm removes a reservation that has ended.
        let Some(recorded) = self.recorded() else { return self.with_finalizer(|| None) };
        if found.end_time.is_some_and(|end| end <= self.now) {
            return ReservationPlan::default();
        }
        let reserved: BTreeSet<_> = found.node_names().unwrap_or_default().into_iter().collect();
        let differs = !desired.is_fulfilled_by(found, &recorded) && recorded != desired.as_recorded();
        let start = desired.next_start(found, &recorded);
        let is_late = differs && !found.is_active(self.now) && start < self.now;
        let plan = self.with_finalizer(|| {
            let nodes = self.nodes(&reserved)?;
            if differs && !found.is_active(self.now) && !is_late {
                return Some(Effect::PutReservation(Box::new(desired.change(found, start, nodes))));
            }
            let nodes_differ = !nodes.iter().eq(&reserved);
            nodes_differ.then(|| Effect::SetReservationNodes { name: found.name.clone(), nodes })
        });
        ReservationPlan { obstacle: is_late.then(|| ScheduleError::Passed(start)), ..plan }
    }

    /// Deletes a reservation of ours. With another strategy, the finalizer is removed after Slurm has deleted it.
    fn remove(&self) -> ReservationPlan {
        let live = self.live();
        let is_removable = self.has_finalizer(RESERVATION_FINALIZER) || matches!(live, Live::Absent);
        let effect = match live {
            Live::Present(found) if self.is_ours() => Some(Effect::DeleteReservation(found.name.clone())),
            Live::Absent if !is_update_scheduled(&self.observed.nodeset) => self.remove_finalizer(),
            Live::Present(_) | Live::Absent | Live::Unknown => None,
        };
        // Without finalizer, only the condition marks the reservation as ours.
        let plan = if is_removable { ReservationPlan::absent() } else { ReservationPlan::default() };
        ReservationPlan { effects: effect.into_iter().collect(), ..plan }
    }

    /// An effect that needs the finalizer. That is added first if there are nodes to reserve.
    fn with_finalizer(&self, effect: impl FnOnce() -> Option<Effect>) -> ReservationPlan {
        if self.has_finalizer(RESERVATION_FINALIZER) {
            return ReservationPlan { effects: effect().into_iter().collect(), ..ReservationPlan::default() };
        }
        ReservationPlan {
            needs_finalizer: self.nodes(&BTreeSet::new()).is_some(),
            ..ReservationPlan::default()
        }
    }

    /// Removes the finalizer. Such a write sets all finalizers, so the one for workers must be present already.
    fn remove_finalizer(&self) -> Option<Effect> {
        let present = self.observed.nodeset.finalizers().iter();
        let finalizers = present.filter(|name| *name != RESERVATION_FINALIZER).cloned().collect();
        let has_both = self.has_finalizer(RESERVATION_FINALIZER) && self.has_finalizer(WORKERS_FINALIZER);
        has_both.then_some(Effect::SetFinalizers { finalizers })
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        has_finalizer(&self.observed.nodeset, finalizer)
    }

    fn is_ours(&self) -> bool {
        owns_reservation(&self.observed.nodeset)
    }

    fn recorded(&self) -> Option<Recorded> {
        Recorded::of(&self.observed.nodeset)
    }

    fn live(&self) -> Live<'_> {
        let reservations = match &self.observed.slurm {
            View::NoRestApi => return Live::Absent,
            View::Unknown { .. } => None,
            View::Known(known) => known.snapshot.reservations.as_ref(),
        };
        let name = reservation_name(&self.observed.nodeset);
        let Some(reservations) = reservations else { return Live::Unknown };
        reservations
            .values()
            .find(|reservation| reservation.name.eq_ignore_ascii_case(&name))
            .map_or(Live::Absent, Live::Present)
    }

    /// The nodes to reserve, sorted: those of the workers, and those of workers being replaced. `None` if there are
    /// none, or if they are uncertain.
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

/// Name of the Slurm reservation in which a NodeSet is updated.
pub fn reservation_name(nodeset: &NodeSet) -> String {
    format!("SlurmOperatorMaint-{}", nodeset.name_any())
}

fn has_finalizer(nodeset: &NodeSet, finalizer: &str) -> bool {
    nodeset.finalizers().iter().any(|name| name == finalizer)
}

#[cfg(test)]
mod tests;
