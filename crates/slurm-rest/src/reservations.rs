//! Reservations: list, create, update, delete.

use crate::client::{Call, SlurmClient, escaped};
use crate::error::{Error, errno};
use crate::wire::{Wrapped, or_default, time};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use slurm_conf::hostlist::{HostlistError, expand, fold_set};

/// A reservation that exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Reservation {
    /// Its name; Slurm compares it without regard to case.
    pub name: String,
    /// Hostlist of its nodes.
    #[serde(default, deserialize_with = "or_default")]
    pub node_list: String,
    /// Users who may use it, separated by commas.
    #[serde(default, deserialize_with = "or_default")]
    pub users: String,
    /// Its flags. Slurm adds `SPEC_NODES` to a reservation that names its nodes.
    #[serde(default, deserialize_with = "or_default")]
    pub flags: Vec<String>,
    /// Its start.
    #[serde(default, deserialize_with = "time")]
    pub start_time: Option<Timestamp>,
    /// Its end.
    #[serde(default, deserialize_with = "time")]
    pub end_time: Option<Timestamp>,
}

impl Reservation {
    /// Whether it has started and not ended. Slurm rejects a new start time for a started reservation.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.start_time.is_some_and(|start| start <= now) && self.end_time.is_none_or(|end| now < end)
    }

    /// The names in [`Self::node_list`].
    pub fn node_names(&self) -> Result<Vec<String>, HostlistError> {
        expand(&self.node_list)
    }
}

/// All reservations at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReservationList {
    /// In no particular order.
    pub reservations: Vec<Reservation>,
    /// slurmctld's time when it answered.
    #[serde(rename = "last_update", default, deserialize_with = "time")]
    pub as_of: Option<Timestamp>,
}

impl ReservationList {
    /// The reservation with this name.
    pub fn get(&self, name: &str) -> Option<&Reservation> {
        self.reservations.iter().find(|reservation| reservation.name.eq_ignore_ascii_case(name))
    }
}

/// A reservation to create, or to update before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRequest {
    /// Its name.
    pub name: String,
    /// Its start.
    pub start: Timestamp,
    /// Its duration in minutes, Slurm's unit.
    pub minutes: u32,
    /// Its flags.
    pub flags: Vec<String>,
    /// Users who may use it.
    pub users: Vec<String>,
    /// Names of its nodes.
    pub nodes: Vec<String>,
}

impl SlurmClient {
    /// All reservations. Also the way to get one: a GET by name reports a missing one in several ways.
    pub async fn list_reservations(&self) -> Result<ReservationList, Error> {
        self.read(Call::get("/reservations/")).await
    }

    /// All reservations, or `None` if none changed since the [`ReservationList::as_of`] of an earlier list.
    pub async fn list_reservations_since(&self, as_of: Timestamp) -> Result<Option<ReservationList>, Error> {
        self.read_changed(Call::get(format!("/reservations/?update_time={}", as_of.as_second()))).await
    }

    /// Creates a reservation, or updates the one with that name. Slurm rejects this once it has started: see
    /// [`Self::set_reservation_nodes`].
    pub async fn put_reservation(&self, request: &ReservationRequest) -> Result<(), Error> {
        let message = json!({
            "name": request.name,
            "start_time": Wrapped::value(request.start.as_second()),
            "duration": Wrapped::value(request.minutes.into()),
            "flags": request.flags,
            "users": request.users,
            "node_list": node_list(&request.nodes)?,
        });
        self.write(Call::post("/reservation", &message)).await
    }

    /// Changes only the nodes of a reservation, whether it has started or not.
    pub async fn set_reservation_nodes(&self, name: &str, nodes: &[String]) -> Result<(), Error> {
        let message = json!({ "name": name, "node_list": node_list(nodes)? });
        self.write(Call::post("/reservation", &message)).await
    }

    /// Deletes a reservation; succeeds if it does not exist.
    pub async fn delete_reservation(&self, name: &str) -> Result<(), Error> {
        match self.write(Call::delete(format!("/reservation/{}", escaped(name)))).await {
            Err(error) if error.is_rejected_with(errno::INVALID_RESERVATION) => Ok(()),
            result => result,
        }
    }
}

/// Slurm accepts an empty list, but then drops `SPEC_NODES` from the reservation.
fn node_list(nodes: &[String]) -> Result<[String; 1], Error> {
    if nodes.is_empty() {
        return Err(Error::Invalid("a reservation needs at least one node".to_owned()));
    }
    Ok([fold_set(nodes.iter().map(String::as_str))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::before(999, false)]
    #[case::at_start(1000, true)]
    #[case::within(1500, true)]
    #[case::at_end(2000, false)]
    fn reservation_is_active_from_its_start_until_before_its_end(#[case] now: i64, #[case] active: bool) {
        let reservation: Reservation = serde_json::from_value(serde_json::json!({
            "name": "r", "start_time": { "set": true, "number": 1000 }, "end_time": { "set": true, "number": 2000 },
        }))
        .unwrap();
        assert_eq!(reservation.is_active(Timestamp::from_second(now).unwrap()), active);
    }

    #[test]
    fn reservation_without_times_is_not_active() {
        let reservation: Reservation = serde_json::from_str(r#"{"name":"r","node_list":"w[0-1]"}"#).unwrap();
        assert!(!reservation.is_active(Timestamp::UNIX_EPOCH));
        assert_eq!(reservation.node_names().unwrap(), ["w0", "w1"]);
    }
}
