//! Reservations: what makes one, what changes one, and what is refused.

use super::{Cluster, Refusal};
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
    /// Its nodes show that it has begun.
    pub begun: bool,
}

/// What a request says about one. Absent members change nothing.
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
    /// Changes the reservation of that name, or makes it.
    pub fn put_reservation(
        &mut self,
        name: &str,
        change: ReservationChange,
        now: i64,
    ) -> Result<(), Refusal> {
        let refuse = |errno, text: &str| Err(Refusal::new(errno, text));
        let unknown = |node: &String| !self.nodes.contains_key(node);
        let missing_node = change.nodes.iter().flatten().any(unknown);
        match self.reservations.iter_mut().find(|known| known.name.eq_ignore_ascii_case(name)) {
            Some(known) if change.start.is_some() && known.start <= now => {
                return refuse(errno::RESERVATION_STARTED, "Failure to update reservation");
            }
            Some(_) if missing_node => {
                return refuse(errno::INVALID_RESERVATION, "Failure to update reservation");
            }
            Some(known) => known.apply(change),
            None => {
                let created = Reservation::create(name, change, now)?;
                if missing_node {
                    return refuse(errno::INVALID_NODE_NAME, "Failure to create reservation");
                }
                self.reservations.push(created);
            }
        }
        (self.reservations_changed, self.nodes_changed) = (now, now);
        Ok(())
    }

    /// Deletes the reservation of that name.
    pub fn delete_reservation(&mut self, name: &str, now: i64) -> Result<(), Refusal> {
        let before = self.reservations.len();
        self.reservations.retain(|known| !known.name.eq_ignore_ascii_case(name));
        if self.reservations.len() == before {
            return Err(Refusal::new(
                errno::INVALID_RESERVATION,
                format!("Error deleting reservation {name}"),
            ));
        }
        (self.reservations_changed, self.nodes_changed) = (now, now);
        Ok(())
    }

    /// The active reservation that holds a node.
    pub fn reservation_of(&self, node: &str, now: i64) -> Option<&Reservation> {
        self.reservations
            .iter()
            .find(|reservation| reservation.start <= now && reservation.nodes.iter().any(|name| name == node))
    }

    /// A deleted node leaves the reservations that have not begun; one without nodes ends.
    pub fn leave_reservations(&mut self, node: &str, now: i64) {
        for reservation in &mut self.reservations {
            reservation.nodes.retain(|name| name != node);
        }
        self.reservations.retain(|reservation| !reservation.nodes.is_empty());
        self.reservations_changed = now;
    }
}

impl Reservation {
    fn create(name: &str, change: ReservationChange, now: i64) -> Result<Self, Refusal> {
        let lacks =
            |text: &str| Refusal::new(errno::INVALID_RESERVATION, format!("{text}  No reservation created."));
        let start = change.start.ok_or_else(|| lacks("A start time must be given."))?;
        let minutes = change.minutes.ok_or_else(|| lacks("An end time or duration must be given."))?;
        let users =
            change.users.ok_or_else(|| lacks("Either Accounts, Users and/or Groups must be specified."))?;
        let flags = change.flags.unwrap_or_default();
        let has = |flag: &str| flags.iter().any(|known| known == flag);
        if start < now && !(has("FORCE_START") && REPEATING.into_iter().any(has)) {
            return Err(Refusal::new(INVALID_TIME, "Failure to create reservation"));
        }
        let nodes = change.nodes.unwrap_or_default();
        let end = start + minutes * 60;
        Ok(Self { name: name.to_owned(), start, end, flags, users, nodes, begun: false })
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
