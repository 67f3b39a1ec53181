//! The state of the fake cluster and how it changes over time. Times are in seconds. Independent of HTTP.

mod jobs;
mod nodes;
mod reservations;

pub use jobs::Job;
pub use nodes::{Node, NodeChange, NodeFlag};
pub use reservations::{Reservation, ReservationChange};

use std::collections::BTreeMap;

/// An error of slurmctld: Slurm's number and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmError {
    pub errno: i32,
    pub error: &'static str,
    pub description: String,
}

impl SlurmError {
    pub fn new(errno: i32, description: impl Into<String>) -> Self {
        let error = match errno {
            -1 => "Unspecified error",
            1007 => "Protocol authentication error",
            2010 => "Invalid user id",
            2016 => "Requested nodes are busy",
            2017 => "Invalid job id specified",
            2018 => "Invalid node name specified",
            2028 => "Invalid node state specified",
            2031 => "Active features not subset of available features",
            2053 => "Requested reservation is invalid",
            2054 => "Invalid time specified",
            2104 => "Reservation has already started",
            2178 => "Requested topology configuration is not available",
            2180 => "Invalid node state transition",
            9207 => "Unable to find flag",
            _ => "No error",
        };
        Self { errno, error, description: description.into() }
    }
}

/// A Slurm cluster.
#[derive(Debug, Default)]
pub struct Cluster {
    pub nodes: BTreeMap<String, Node>,
    pub jobs: BTreeMap<i64, Job>,
    pub reservations: Vec<Reservation>,
    /// Time of the last change of any node.
    pub nodes_changed: i64,
    /// Time of the last change of any job.
    pub jobs_changed: i64,
    /// Time of the last change of any reservation.
    pub reservations_changed: i64,
}

impl Cluster {
    /// Applies all changes that happen without a request until `now`.
    pub fn advance(&mut self, now: i64) {
        let mut changed = None;
        let mut went_down = vec![];
        for (name, node) in &mut self.nodes {
            let was_down = node.flags.contains(&NodeFlag::Down);
            changed = changed.max(node.advance(now));
            if node.flags.contains(&NodeFlag::Down) && !was_down {
                went_down.push(name.clone());
            }
        }
        for name in &went_down {
            self.requeue_jobs_of(name, now);
        }
        let before = self.reservations.len();
        self.reservations.retain(|reservation| now < reservation.end);
        if self.reservations.len() != before {
            self.reservations_changed = now;
            changed = Some(now);
        }
        for reservation in &mut self.reservations {
            if reservation.start <= now && !reservation.started {
                reservation.started = true;
                changed = Some(now);
            }
        }
        self.nodes_changed = self.nodes_changed.max(changed.unwrap_or_default());
        self.start_pending_jobs(now);
    }
}
