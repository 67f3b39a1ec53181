//! What a cluster said, less what that does not prove. Pure.

use super::absences::{Absences, Nodes};
use super::reachability::is_stale;
use super::view::{Jobs, Known, Snapshot, View};
use super::write_log::{Asked, Outcome, Turn, WriteLog};
use crate::timing::MASS_ABSENCE_PROOF;
use jiff::Timestamp;
use slurm_rest::{NodeList, Reservation, ReservationList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

/// What a write is made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nodes.
    Nodes,
    /// Reservations.
    Reservations,
}

/// All that is remembered of one cluster.
#[derive(Debug, Default)]
pub struct SlurmState {
    turn: Turn,
    seen: Option<Seen>,
    /// When the first question was asked that was answered.
    first: Option<Instant>,
    busy: BTreeSet<String>,
    /// The last failure, until the next success.
    error: Option<String>,
    absences: Absences,
    node_writes: WriteLog,
    reservation_writes: WriteLog,
    jobs_asked: Option<Instant>,
    reservations: Option<SeenReservations>,
    news: bool,
}

#[derive(Debug)]
struct Seen {
    snapshot: Arc<Snapshot>,
    /// When it was asked for, or confirmed, last.
    asked: Asked,
    /// slurmctld's clock when it said this.
    as_of: Option<Timestamp>,
}

#[derive(Debug)]
struct SeenReservations {
    asked: Instant,
    as_of: Option<Timestamp>,
}

impl SlurmState {
    /// A question is asked now.
    pub fn ask(&mut self, at: Instant, time: Timestamp) -> Asked {
        Asked { turn: self.turn.next(), at, time }
    }

    /// Since when changes of nodes would be news.
    pub fn nodes_as_of(&self) -> Option<Timestamp> {
        self.seen.as_ref().and_then(|seen| seen.as_of)
    }

    /// Since when changes of reservations would be news.
    pub fn reservations_as_of(&self) -> Option<Timestamp> {
        self.reservations.as_ref().and_then(|seen| seen.as_of)
    }

    /// The nodes that jobs hold.
    pub fn busy(&self) -> &BTreeSet<String> {
        &self.busy
    }

    /// The cluster told all its nodes.
    pub fn nodes_listed(&mut self, asked: Asked, list: NodeList) {
        let nodes: Nodes = list.nodes.into_iter().map(|node| (node.name.clone(), node)).collect();
        self.busy = nodes.values().filter(|node| node.is_busy()).map(|node| node.name.clone()).collect();
        let deleted = self.node_writes.settle(&asked);
        let (none, before) = (Nodes::new(), self.seen.as_ref().map(|seen| &seen.snapshot.nodes));
        self.absences.compare(before.unwrap_or(&none), &nodes, &deleted, asked.at);
        self.first.get_or_insert(asked.at);
        self.news |= before != Some(&nodes);
        self.error = None;
        let before =
            self.seen.take().map(|seen| (seen.snapshot.jobs.clone(), seen.snapshot.reservations.clone()));
        let (jobs, reservations) = before.unwrap_or_default();
        let snapshot = Arc::new(Snapshot { asked: asked.time, nodes, jobs, reservations });
        self.seen = Some(Seen { snapshot, asked, as_of: list.as_of });
    }

    /// The cluster told that its nodes are as they were.
    pub fn nodes_unchanged(&mut self, asked: Asked) {
        self.node_writes.settle(&asked);
        self.error = None;
        if let Some(seen) = &mut self.seen {
            seen.asked = asked;
            // Copies the nodes only while somebody holds the snapshot, and nobody does while nothing happens.
            Arc::make_mut(&mut seen.snapshot).asked = asked.time;
        }
    }

    /// The cluster did not tell its nodes. Whether it did before.
    pub fn nodes_failed(&mut self, error: String) -> bool {
        self.error.replace(error).is_none()
    }

    /// When the question was asked that was answered last.
    pub fn heard(&self) -> Option<Instant> {
        self.seen.as_ref().map(|seen| seen.asked.at)
    }

    /// Why the last question about nodes had no answer.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The cluster told its jobs. `wished`: somebody wants to know which partitions they name.
    pub fn jobs_listed(&mut self, asked: Asked, jobs: Jobs, wished: bool) {
        self.jobs_asked = Some(asked.at);
        self.set_jobs(Some(jobs), wished);
    }

    /// The cluster told its reservations.
    pub fn reservations_listed(&mut self, asked: Asked, list: ReservationList) {
        self.reservation_writes.settle(&asked);
        if !self.reservation_writes.is_settled() {
            return;
        }
        let named = |reservation: Reservation| (reservation.name.clone(), reservation);
        self.reservations = Some(SeenReservations { asked: asked.at, as_of: list.as_of });
        self.set_reservations(Some(list.reservations.into_iter().map(named).collect()));
    }

    /// The cluster told that its reservations are as they were.
    pub fn reservations_unchanged(&mut self, asked: Asked) {
        if let Some(seen) = &mut self.reservations {
            seen.asked = asked.at;
        }
    }

    /// Forgets jobs and reservations that are too old, or that nobody keeps fresh any more.
    pub fn forget_old(&mut self, wishes_jobs: bool, wishes_reservations: bool, now: Instant) {
        let is_old = |asked: Instant| is_stale(now.duration_since(asked));
        let needs_jobs = wishes_jobs || !self.busy.is_empty();
        if self.jobs_asked.is_some_and(|asked| !needs_jobs || is_old(asked)) {
            self.jobs_asked = None;
            self.set_jobs(None, wishes_jobs);
        }
        if self.reservations.as_ref().is_some_and(|seen| !wishes_reservations || is_old(seen.asked)) {
            self.forget_reservations();
        }
    }

    /// A write is about to be sent.
    pub fn write_begins(&mut self, written: Written, names: &[String]) {
        self.log(written).begin(names);
        if written == Written::Reservations {
            self.forget_reservations();
        }
    }

    /// A write was answered; `deleted`: with the word that none of these is there any more.
    pub fn write_answered(&mut self, written: Written, names: &[String], deleted: bool) {
        let turn = self.turn.next();
        let outcome = if deleted { Outcome::Deleted(turn) } else { Outcome::Answered(turn) };
        self.log(written).end(names, outcome);
    }

    /// A write that was sent then was not answered.
    pub fn write_lost(&mut self, written: Written, names: &[String], sent: Instant) {
        self.log(written).end(names, Outcome::Lost(sent));
    }

    /// Whether something changed since this was asked last.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// What is known now.
    pub fn view(&self, now: Instant) -> View {
        let error = self.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        let Some(seen) = &self.seen else {
            let why = format!("Slurm has not answered yet{error}");
            return View::Unknown { why, overdue: self.error.is_some() };
        };
        if is_stale(now.duration_since(seen.asked.at)) {
            return View::unreachable(format!(
                "Slurm has not answered since {:.0}{error}",
                seen.snapshot.asked
            ));
        }
        let uncertain = self.absences.unproven().chain(self.node_writes.unseen()).cloned().collect();
        let is_new = self.first.is_none_or(|first| now < first + MASS_ABSENCE_PROOF);
        View::Known(Known { snapshot: seen.snapshot.clone(), uncertain, is_new })
    }

    fn log(&mut self, written: Written) -> &mut WriteLog {
        match written {
            Written::Nodes => &mut self.node_writes,
            Written::Reservations => &mut self.reservation_writes,
        }
    }

    fn forget_reservations(&mut self) {
        self.reservations = None;
        self.set_reservations(None);
    }

    fn set_jobs(&mut self, jobs: Option<Jobs>, wished: bool) {
        let Some(seen) = self.seen.as_mut().filter(|seen| seen.snapshot.jobs != jobs) else { return };
        let before = std::mem::replace(&mut Arc::make_mut(&mut seen.snapshot).jobs, jobs);
        self.news |= matters(before.as_ref(), wished) != matters(seen.snapshot.jobs.as_ref(), wished);
    }

    fn set_reservations(&mut self, reservations: Option<BTreeMap<String, Reservation>>) {
        let Some(seen) = self.seen.as_mut().filter(|seen| seen.snapshot.reservations != reservations) else {
            return;
        };
        Arc::make_mut(&mut seen.snapshot).reservations = reservations;
        self.news = true;
    }
}

/// The part of jobs whose change is news: which partitions they name only if somebody wants to know.
fn matters(jobs: Option<&Jobs>, wished: bool) -> Option<Jobs> {
    let mut jobs = jobs?.clone();
    if !wished {
        jobs.by_partition.clear();
        jobs.open_partitions = None;
    }
    Some(jobs).filter(|jobs| wished || !jobs.deadlines.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::STALE_AFTER;
    use std::time::Duration;

    #[test]
    fn a_cluster_is_new_for_a_minute_after_its_first_answer() {
        let (start, mut memory) = (Instant::now(), SlurmState::default());
        let mut is_new = |second| {
            let now = start + Duration::from_secs(second);
            let asked = memory.ask(now, Timestamp::UNIX_EPOCH);
            memory.nodes_listed(asked, NodeList { nodes: vec![], as_of: None });
            let View::Known(known) = memory.view(now) else { panic!("it was told") };
            known.is_new
        };
        assert_eq!([0, 59, 60, 600].map(&mut is_new), [true, true, false, false]);
    }

    #[test]
    fn silence_is_told_to_the_second() {
        let start = Instant::now();
        let mut memory = SlurmState::default();
        let asked = memory.ask(start, "2027-01-15T08:00:00.123456789Z".parse().unwrap());
        memory.nodes_listed(asked, NodeList { nodes: vec![], as_of: None });
        let View::Unknown { why, overdue } = memory.view(start + STALE_AFTER) else { panic!("it is old") };
        assert_eq!((why.as_str(), overdue), ("Slurm has not answered since 2027-01-15T08:00:00Z", true));
    }
}
