//! The record of the reservation that Slurm was last seen with, in an annotation of the NodeSet.

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use slinky_api::conditions::{self, RESERVATION_CREATED};
use slinky_api::labels::annotations::RESERVATION;
use slinky_api::v1beta1::NodeSet;
use slurm_rest::Reservation;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A reservation apart from its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// Name.
    pub name: String,
    /// Start, the first one if it repeats; `None` if Slurm shows none.
    pub start: Option<Timestamp>,
    /// Duration.
    pub minutes: i64,
    /// Flags.
    pub flags: BTreeSet<String>,
}

impl ReservationRecord {
    /// The record of a reservation as Slurm shows it.
    pub fn of(live: &Reservation) -> Self {
        Self {
            name: live.name.clone(),
            start: live.start_time,
            minutes: minutes_of(live).unwrap_or_default(),
            flags: live.flags.iter().cloned().collect(),
        }
    }
}

impl fmt::Display for ReservationRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.start.map_or_else(|| "at an unknown time".to_owned(), |start| start.to_string());
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        write!(f, "{} starts {start} for {} min [{}]", self.name, self.minutes, flags.join(", "))
    }
}

/// Whole minutes between start and end of a reservation.
pub fn minutes_of(live: &Reservation) -> Option<i64> {
    let (start, end) = live.start_time.zip(live.end_time)?;
    Some(end.duration_since(start).as_mins())
}

/// The reservation that Slurm was last seen with, as far as the NodeSet records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// There was one, but not which: the condition was written by an operator without record.
    Unknown,
    /// This one.
    Known(ReservationRecord),
}

impl Recorded {
    /// Reads the annotation. Of the condition only the presence counts, because its message is for people.
    pub fn of(nodeset: &NodeSet) -> Option<Self> {
        let has_condition = nodeset
            .status
            .as_ref()
            .is_some_and(|status| conditions::find(&status.conditions, RESERVATION_CREATED).is_some());
        parse(nodeset).map(Self::Known).or_else(|| has_condition.then_some(Self::Unknown))
    }

    /// A description for people; `name` if no more is known.
    pub fn describe(&self, name: &str) -> String {
        match self {
            Self::Unknown => name.to_owned(),
            Self::Known(record) => record.to_string(),
        }
    }
}

/// The record in the annotation. An annotation that a person has made unreadable counts as missing.
fn parse(nodeset: &NodeSet) -> Option<ReservationRecord> {
    serde_json::from_str(nodeset.annotations().get(RESERVATION)?).ok()
}

/// A change of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is removed.
    Remove,
    /// It becomes this one.
    Set(ReservationRecord),
}

impl RecordChange {
    /// The change of the annotation, empty if it is up to date; `None` as value removes it.
    pub fn annotations(&self, nodeset: &NodeSet) -> BTreeMap<String, Option<String>> {
        let value = match self {
            Self::Remove if nodeset.annotations().contains_key(RESERVATION) => None,
            Self::Set(record) if parse(nodeset).as_ref() != Some(record) => {
                // Serializing strings and numbers cannot fail.
                Some(serde_json::to_string(record).unwrap_or_default())
            }
            Self::Keep | Self::Remove | Self::Set(_) => return BTreeMap::new(),
        };
        BTreeMap::from([(RESERVATION.to_owned(), value)])
    }
}
