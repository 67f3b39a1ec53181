//! The last lists of a cluster, and the nodes for which they are no evidence. Pure.

use super::absences::{Absences, Nodes};
use super::reachability::is_stale;
use super::view::{Jobs, Known, Snapshot, View};
use super::write_log::{Outcome, ReadStart, Sequence, WriteLog};
use crate::timing::MASS_ABSENCE_PROOF;
use jiff::Timestamp;
use slurm_rest::{NodeList, Reservation, ReservationList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// The kind of object that a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nodes.
    Nodes,
    /// Reservations.
    Reservations,
}

/// The state of one cluster as far as it was read.
#[derive(Debug, Default)]
pub struct SlurmState {
    sequence: Sequence,
    nodes: Option<ListedNodes>,
    /// When the first node list that was answered started.
    first_listed_at: Option<Instant>,
    busy: BTreeSet<String>,
    /// The error of the last node list, until the next success.
    error: Option<String>,
    absences: Absences,
    node_writes: WriteLog,
    reservation_writes: WriteLog,
    jobs_read_at: Option<Instant>,
    reservations: Option<ListedReservations>,
    changed: bool,
}

#[derive(Debug)]
struct ListedNodes {
    snapshot: Arc<Snapshot>,
    /// The last read that returned or confirmed the list.
    read: ReadStart,
    /// slurmctld's clock when it answered.
    as_of: Option<Timestamp>,
}

#[derive(Debug)]
struct ListedReservations {
    read_at: Instant,
    as_of: Option<Timestamp>,
}

impl SlurmState {
    /// Starts a read.
    pub fn start_read(&mut self, at: Instant, time: Timestamp) -> ReadStart {
        ReadStart { sequence: self.sequence.next(), at, time }
    }

    /// slurmctld's time of the last node list, for a conditional list.
    pub fn nodes_as_of(&self) -> Option<Timestamp> {
        self.nodes.as_ref().and_then(|listed| listed.as_of)
    }

    /// slurmctld's time of the last reservation list, for a conditional list.
    pub fn reservations_as_of(&self) -> Option<Timestamp> {
        self.reservations.as_ref().and_then(|listed| listed.as_of)
    }

    /// The nodes with jobs.
    pub fn busy(&self) -> &BTreeSet<String> {
        &self.busy
    }

    /// Slurm returned all nodes.
    pub fn nodes_listed(&mut self, read: ReadStart, list: NodeList) {
        let nodes: Nodes = list.nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        self.busy = nodes.values().filter(|node| node.is_busy()).map(|node| node.name.clone()).collect();
        let deleted = self.node_writes.settle(&read);
        let (none, before) = (Nodes::new(), self.nodes.as_ref().map(|listed| &listed.snapshot.nodes));
        self.absences.compare(before.unwrap_or(&none), &nodes, &deleted, read.at);
        self.first_listed_at.get_or_insert(read.at);
        self.changed |= before != Some(&nodes);
        self.error = None;
        let before = self.nodes.take().map(|listed| listed.snapshot);
        let before = before.map(|snapshot| (snapshot.jobs.clone(), snapshot.reservations.clone()));
        let (jobs, reservations) = before.unwrap_or_default();
        let snapshot = Arc::new(Snapshot { requested_at: read.time, nodes, jobs, reservations });
        self.nodes = Some(ListedNodes { snapshot, read, as_of: list.as_of });
    }

    /// Slurm answered that no node changed.
    pub fn nodes_unchanged(&mut self, read: ReadStart) {
        self.node_writes.settle(&read);
        self.error = None;
        if let Some(listed) = &mut self.nodes {
            listed.read = read;
            // Copies the nodes only if a reconcile holds the snapshot, and none runs while nothing changes.
            Arc::make_mut(&mut listed.snapshot).requested_at = read.time;
        }
    }

    /// Listing nodes failed. Returns whether the list before succeeded.
    pub fn node_list_failed(&mut self, error: String) -> bool {
        self.error.replace(error).is_none()
    }

    /// When the last node list that was answered started.
    pub fn last_listed_at(&self) -> Option<Instant> {
        self.nodes.as_ref().map(|listed| listed.read.at)
    }

    /// The error of the last node list.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Slurm returned its jobs. `by_partition`: a reader needs the counts by partition.
    pub fn jobs_listed(&mut self, read: ReadStart, jobs: Jobs, by_partition: bool) {
        self.jobs_read_at = Some(read.at);
        self.set_jobs(Some(jobs), by_partition);
    }

    /// Slurm returned its reservations.
    pub fn reservations_listed(&mut self, read: ReadStart, list: ReservationList) {
        self.reservation_writes.settle(&read);
        if !self.reservation_writes.is_settled() {
            return;
        }
        let by_name = |reservation: Reservation| (reservation.name.clone(), reservation);
        self.reservations = Some(ListedReservations { read_at: read.at, as_of: list.as_of });
        self.set_reservations(Some(list.reservations.into_iter().map(by_name).collect()));
    }

    /// Slurm answered that no reservation changed.
    pub fn reservations_unchanged(&mut self, read: ReadStart) {
        if let Some(listed) = &mut self.reservations {
            listed.read_at = read.at;
        }
    }

    /// Drops jobs and reservations that are stale or no longer requested.
    pub fn expire(&mut self, jobs_requested: bool, reservations_requested: bool, now: Instant) {
        let is_old = |read_at: Instant| is_stale(now.duration_since(read_at));
        let needs_jobs = jobs_requested || !self.busy.is_empty();
        if self.jobs_read_at.is_some_and(|read_at| !needs_jobs || is_old(read_at)) {
            self.jobs_read_at = None;
            self.set_jobs(None, jobs_requested);
        }
        if self.reservations.as_ref().is_some_and(|listed| !reservations_requested || is_old(listed.read_at))
        {
            self.drop_reservations();
        }
    }

    /// A write is about to be sent.
    pub fn write_started(&mut self, target: Target, names: &[String]) {
        self.log(target).start(names);
        if target == Target::Reservations {
            self.drop_reservations();
        }
    }

    /// A write was answered. `deleted`: Slurm confirmed that the objects were deleted.
    pub fn write_answered(&mut self, target: Target, names: &[String], deleted: bool) {
        let sequence = self.sequence.next();
        let outcome = if deleted { Outcome::Deleted(sequence) } else { Outcome::Answered(sequence) };
        self.log(target).finish(names, outcome);
    }

    /// A write that was sent at `sent` was not answered.
    pub fn write_unanswered(&mut self, target: Target, names: &[String], sent: Instant) {
        self.log(target).finish(names, Outcome::Unanswered(sent));
    }

    /// Whether lists changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The current view.
    pub fn view(&self, now: Instant) -> View {
        let error = self.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let Some(listed) = &self.nodes else {
            let why = format!("Slurm has not answered yet{error}");
            return View::Unknown { why, overdue: self.error.is_some() };
        };
        if is_stale(now.duration_since(listed.read.at)) {
            let since = listed.snapshot.requested_at;
            return View::unreachable(format!("Slurm has not answered since {since:.0}{error}"));
        }
        let uncertain = self.absences.unproven().chain(self.node_writes.unconfirmed()).cloned().collect();
        let is_new = self.first_listed_at.is_none_or(|first| now < first + MASS_ABSENCE_PROOF);
        View::Known(Known { snapshot: listed.snapshot.clone(), uncertain, is_new })
    }

    fn log(&mut self, target: Target) -> &mut WriteLog {
        match target {
            Target::Nodes => &mut self.node_writes,
            Target::Reservations => &mut self.reservation_writes,
        }
    }

    fn drop_reservations(&mut self) {
        self.reservations = None;
        self.set_reservations(None);
    }

    fn set_jobs(&mut self, jobs: Option<Jobs>, by_partition: bool) {
        let Some(listed) = self.nodes.as_mut().filter(|listed| listed.snapshot.jobs != jobs) else { return };
        let before = std::mem::replace(&mut Arc::make_mut(&mut listed.snapshot).jobs, jobs);
        let after = listed.snapshot.jobs.as_ref();
        self.changed |= relevant(before.as_ref(), by_partition) != relevant(after, by_partition);
    }

    fn set_reservations(&mut self, reservations: Option<BTreeMap<String, Reservation>>) {
        let listed = self.nodes.as_mut().filter(|listed| listed.snapshot.reservations != reservations);
        let Some(listed) = listed else { return };
        Arc::make_mut(&mut listed.snapshot).reservations = reservations;
        self.changed = true;
    }
}

/// The part of the jobs whose change is published: the counts by partition only if a reader needs them.
fn relevant(jobs: Option<&Jobs>, by_partition: bool) -> Option<Jobs> {
    let mut jobs = jobs?.clone();
    if !by_partition {
        jobs.by_partition.clear();
        jobs.open_partitions = None;
    }
    Some(jobs).filter(|jobs| by_partition || !jobs.deadlines.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::STALE_AFTER;
    use std::time::Duration;

    #[test]
    fn cluster_is_new_for_a_minute_after_its_first_answer() {
        let (start, mut state) = (Instant::now(), SlurmState::default());
        let mut is_new = |second| {
            let now = start + Duration::from_secs(second);
            let read = state.start_read(now, Timestamp::UNIX_EPOCH);
            state.nodes_listed(read, NodeList { nodes: vec![], as_of: None });
            let View::Known(known) = state.view(now) else { panic!("the list is fresh") };
            known.is_new
        };
        assert_eq!([0, 59, 60, 600].map(&mut is_new), [true, true, false, false]);
    }

    #[test]
    fn stale_view_states_the_last_answer_in_whole_seconds() {
        let start = Instant::now();
        let mut state = SlurmState::default();
        let read = state.start_read(start, "2027-01-15T08:00:00.123456789Z".parse().unwrap());
        state.nodes_listed(read, NodeList { nodes: vec![], as_of: None });
        let View::Unknown { why, overdue } = state.view(start + STALE_AFTER) else {
            panic!("the list is stale")
        };
        assert_eq!((why.as_str(), overdue), ("Slurm has not answered since 2027-01-15T08:00:00Z", true));
    }
}
