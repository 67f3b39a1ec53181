//! Reservations: creation, updates, and their errors.

use super::{Cluster, SlurmError};
use slurm_rest::errno;

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub name: String,
    pub start: i64,
    pub end: i64,
    pub flags: Vec<String>,
    pub users: Vec<String>,
    pub nodes: Vec<String>,
    /// Its nodes show that it has started.
    pub started: bool,
}

/// A requested change. Absent fields change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationChange {
    pub start: Option<i64>,
    pub minutes: Option<i64>,
    pub flags: Option<Vec<String>>,
    pub users: Option<Vec<String>>,
    pub nodes: Option<Vec<String>>,
}

const REPEATING: [&str; 5] = ["HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND"];

impl Cluster {
    /// Updates the reservation with that name, or creates it.
    pub fn put_reservation(
        &mut self,
        name: &str,
        change: ReservationChange,
        now: i64,
    ) -> Result<(), SlurmError> {
        let reject = |errno, text: &str| Err(SlurmError::new(errno, text));
        let unknown = |node: &String| !self.nodes.contains_key(node);
        let missing_node = change.nodes.iter().flatten().any(unknown);
        match self.reservations.iter_mut().find(|known| known.name.eq_ignore_ascii_case(name)) {
            Some(known) if change.start.is_some() && known.start <= now => {
                return reject(errno::RESERVATION_STARTED, "Failure to update reservation");
            }
            Some(_) if missing_node => {
                return reject(errno::INVALID_RESERVATION, "Failure to update reservation");
            }
            Some(known) => known.apply(change),
            None => {
                let created = Reservation::create(name, change, now)?;
                if missing_node {
                    return reject(errno::INVALID_NODE_NAME, "Failure to create reservation");
                }
                self.reservations.push(created);
            }
        }
        (self.reservations_changed, self.nodes_changed) = (now, now);
        Ok(())
    }

    /// Deletes the reservation with that name.
    pub fn delete_reservation(&mut self, name: &str, now: i64) -> Result<(), SlurmError> {
        let before = self.reservations.len();
        self.reservations.retain(|known| !known.name.eq_ignore_ascii_case(name));
        if self.reservations.len() == before {
            return Err(SlurmError::new(
                errno::INVALID_RESERVATION,
                format!("Error deleting reservation {name}"),
            ));
        }
        (self.reservations_changed, self.nodes_changed) = (now, now);
        Ok(())
    }

    /// The active reservation of a node.
    pub fn reservation_of(&self, node: &str, now: i64) -> Option<&Reservation> {
        self.reservations
            .iter()
            .find(|reservation| reservation.start <= now && reservation.nodes.iter().any(|name| name == node))
    }

    /// Removes a deleted node from its reservations, and reservations that have no node left.
    pub fn remove_from_reservations(&mut self, node: &str, now: i64) {
        for reservation in &mut self.reservations {
            reservation.nodes.retain(|name| name != node);
        }
        self.reservations.retain(|reservation| !reservation.nodes.is_empty());
        self.reservations_changed = now;
    }
}

impl Reservation {
    fn create(name: &str, change: ReservationChange, now: i64) -> Result<Self, SlurmError> {
        let missing = |text: &str| {
            SlurmError::new(errno::INVALID_RESERVATION, format!("{text}  No reservation created."))
        };
        let start = change.start.ok_or_else(|| missing("A start time must be given."))?;
        let minutes = change.minutes.ok_or_else(|| missing("An end time or duration must be given."))?;
        let users =
            change.users.ok_or_else(|| missing("Either Accounts, Users and/or Groups must be specified."))?;
        let flags = change.flags.unwrap_or_default();
        let has = |flag: &str| flags.iter().any(|known| known == flag);
        if start < now && !(has("FORCE_START") && REPEATING.into_iter().any(has)) {
            return Err(SlurmError::new(INVALID_TIME, "Failure to create reservation"));
        }
        let nodes = change.nodes.unwrap_or_default();
        let end = start + minutes * 60;
        Ok(Self { name: name.to_owned(), start, end, flags, users, nodes, started: false })
    }

    fn apply(&mut self, change: ReservationChange) {
        let minutes = change.minutes.unwrap_or((self.end - self.start) / 60);
        self.start = change.start.unwrap_or(self.start);
        self.end = self.start + minutes * 60;
        self.flags = change.flags.unwrap_or_else(|| self.flags.clone());
        self.users = change.users.unwrap_or_else(|| self.users.clone());
        self.nodes = change.nodes.unwrap_or_else(|| self.nodes.clone());
    }
}

const INVALID_TIME: i32 = 2054;
