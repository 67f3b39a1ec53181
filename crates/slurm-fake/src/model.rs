//! The state of the fake cluster and how it changes with time. Time is given in seconds; nothing here knows of HTTP.

mod jobs;
mod nodes;
mod reservations;

pub use jobs::Job;
pub use nodes::{Mark, Node, NodeChange};
pub use reservations::{Reservation, ReservationChange};

use std::collections::BTreeMap;

/// Why the cluster refuses, with Slurm's number and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: i32,
    pub error: &'static str,
    pub description: String,
}

impl Refusal {
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
    /// When something about any node changed last.
    pub nodes_changed: i64,
    /// When something about any job changed last.
    pub jobs_changed: i64,
    /// When something about any reservation changed last.
    pub reservations_changed: i64,
}

impl Cluster {
    /// Lets happen what happens by itself up to `now`.
    pub fn advance(&mut self, now: i64) {
        let mut changed = None;
        let mut fallen = vec![];
        for (name, node) in &mut self.nodes {
            let was_down = node.marks.contains(&Mark::Down);
            changed = changed.max(node.advance(now));
            if node.marks.contains(&Mark::Down) && !was_down {
                fallen.push(name.clone());
            }
        }
        for name in &fallen {
            self.requeue_jobs_of(name, now);
        }
        let before = self.reservations.len();
        self.reservations.retain(|reservation| now < reservation.end);
        if self.reservations.len() != before {
            self.reservations_changed = now;
            changed = Some(now);
        }
        for reservation in &mut self.reservations {
            if reservation.start <= now && !reservation.begun {
                reservation.begun = true;
                changed = Some(now);
            }
        }
        self.nodes_changed = self.nodes_changed.max(changed.unwrap_or_default());
        self.start_waiting_jobs(now);
    }
}
