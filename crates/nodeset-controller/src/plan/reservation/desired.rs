//! The desired reservation of a NodeSet: parsed from its spec, and compared with the one in Slurm.

use super::record::{Recorded, ReservationRecord, minutes_of};
use super::reservation_name;
use jiff::{SignedDuration, Timestamp};
use slinky_api::TypeMismatch;
use slinky_api::v1beta1::{NodeSet, ScheduledUpdate};
use slurm_rest::{Reservation, ReservationRequest};
use std::collections::BTreeSet;

/// Flags of every reservation of ours: it takes nodes out of service, whatever runs there.
const REQUIRED_FLAGS: [&str; 2] = ["IGNORE_JOBS", "MAINT"];
/// Accepts a start in the past.
const FORCE_START: &str = "FORCE_START";
/// Flags of repeating reservations, whose start Slurm moves on each repetition.
const REPEATING: [&str; 5] = ["DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY"];
/// Flags that an update can also clear, with the prefix `NO_`. Only these are compared: Slurm keeps others forever, or
/// never shows them.
const REVOCABLE: [&str; 14] = [
    "ANY_NODES",
    "DAILY",
    "FLEX",
    "HOURLY",
    "IGNORE_JOBS",
    "MAGNETIC",
    "MAINT",
    "PART_NODES",
    "PURGE_COMP",
    "STATIC",
    "USER_DELETE",
    "WEEKDAY",
    "WEEKEND",
    "WEEKLY",
];
/// The only user of the reservation, who submits no jobs.
const USER: &str = "slurm";
/// Maximum duration. Slurm counts seconds in 32 bits, and truncates longer ones without error.
const MAX_DURATION: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Why the reservation in Slurm does not follow the spec.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A required field is missing.
    #[error("spec.updateStrategy.scheduledUpdate.{0} is missing")]
    Missing(&'static str),
    /// The start is not a valid time.
    #[error("spec.updateStrategy.scheduledUpdate.startTime")]
    StartTime(#[from] TypeMismatch),
    /// The duration is invalid.
    #[error("spec.updateStrategy.scheduledUpdate.duration")]
    Duration(#[from] jiff::Error),
    /// Slurm would misinterpret the duration: zero minutes means forever.
    #[error("spec.updateStrategy.scheduledUpdate.duration: {0} is not between one minute and one year")]
    Length(String),
    /// A flag has invalid characters.
    #[error("spec.updateStrategy.scheduledUpdate.flags: {0:?} is not a valid flag")]
    Flag(String),
    /// Slurm accepts `FORCE_START` only for repeating reservations.
    #[error("spec.updateStrategy.scheduledUpdate.flags: FORCE_START requires one of {}", REPEATING.join(", "))]
    ForcedOnce,
    /// Slurm accepts no start in the past.
    #[error(
        "spec.updateStrategy.scheduledUpdate.startTime: {0} has passed; outdated workers are not updated"
    )]
    Passed(Timestamp),
    /// The reservation was not created for this NodeSet.
    #[error(
        "Slurm already has a reservation {0} that was not created for this NodeSet; delete it or rename the NodeSet"
    )]
    NameTaken(String),
}

impl ScheduleError {
    /// The reason in conditions and metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Missing(_)
            | Self::StartTime(_)
            | Self::Duration(_)
            | Self::Length(_)
            | Self::Flag(_)
            | Self::ForcedOnce => "InvalidSpec",
            Self::Passed(_) => "SchedulePassed",
            Self::NameTaken(_) => "ReservationNameTaken",
        }
    }
}

/// The desired reservation of a NodeSet, apart from its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredReservation {
    name: String,
    start: Timestamp,
    minutes: u32,
    flags: BTreeSet<String>,
}

impl DesiredReservation {
    /// Parses the spec.
    pub fn of(nodeset: &NodeSet) -> Result<Self, ScheduleError> {
        let strategy = nodeset.spec.effective_update_strategy();
        let schedule = strategy.scheduled_update.ok_or(ScheduleError::Missing("startTime"))?;
        let start = schedule.start_time.read()?.ok_or(ScheduleError::Missing("startTime"))?.0;
        let desired = Self {
            name: reservation_name(nodeset),
            start: Timestamp::from_second(start.as_second()).unwrap_or(start),
            minutes: minutes(&schedule)?,
            flags: flags(&schedule)?,
        };
        if desired.flags.contains(FORCE_START) && !desired.repeats() {
            return Err(ScheduleError::ForcedOnce);
        }
        Ok(desired)
    }

    /// Its start, the first one if it repeats.
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// Whether it repeats.
    fn repeats(&self) -> bool {
        REPEATING.iter().any(|flag| self.flags.contains(*flag))
    }

    /// Whether Slurm accepts a new reservation like this now.
    pub fn can_be_created(&self, now: Timestamp) -> bool {
        let length = SignedDuration::from_mins(self.minutes.into());
        self.start >= now || (self.flags.contains(FORCE_START) && now.duration_since(self.start) < length)
    }

    /// Whether the reservation in Slurm is the desired one.
    pub fn is_fulfilled_by(&self, found: &Reservation, recorded: &Recorded) -> bool {
        found.start_time == Some(self.next_start(found, recorded))
            && minutes_of(found) == Some(self.minutes.into())
            && REVOCABLE.iter().all(|flag| self.flags.contains(*flag) == has_flag(found, flag))
    }

    /// The next start of the reservation in Slurm: as Slurm has moved it, unless it is recorded with another first
    /// start.
    pub fn next_start(&self, found: &Reservation, recorded: &Recorded) -> Timestamp {
        let same_start = match recorded {
            Recorded::Unknown => true,
            Recorded::Known(record) => record.name == self.name && record.start == Some(self.start),
        };
        let moved = found.start_time.filter(|start| self.repeats() && same_start && *start > self.start);
        moved.unwrap_or(self.start)
    }

    /// The record of this reservation.
    pub fn record(&self) -> ReservationRecord {
        ReservationRecord {
            name: self.name.clone(),
            start: Some(self.start),
            minutes: self.minutes.into(),
            flags: self.flags.clone(),
        }
    }

    /// The recorded state after Slurm was seen with this reservation.
    pub fn as_recorded(&self) -> Recorded {
        Recorded::Known(self.record())
    }

    /// The request that creates it.
    pub fn request(&self, nodes: Vec<String>) -> ReservationRequest {
        ReservationRequest {
            name: self.name.clone(),
            start: self.start,
            minutes: self.minutes,
            flags: self.flags.iter().cloned().collect(),
            users: vec![USER.to_owned()],
            nodes,
        }
    }

    /// The request that changes the reservation in Slurm into this one, with its next start.
    pub fn change(&self, found: &Reservation, start: Timestamp, nodes: Vec<String>) -> ReservationRequest {
        let mut request = ReservationRequest { start, ..self.request(nodes) };
        let excess = REVOCABLE.iter().filter(|flag| has_flag(found, flag) && !self.flags.contains(**flag));
        request.flags.extend(excess.map(|flag| format!("NO_{flag}")));
        request
    }
}

fn has_flag(found: &Reservation, flag: &str) -> bool {
    found.flags.iter().any(|known| known.eq_ignore_ascii_case(flag))
}

/// Whole minutes: Slurm's unit.
fn minutes(schedule: &ScheduledUpdate) -> Result<u32, ScheduleError> {
    let written = schedule.duration.as_value().as_str().ok_or(ScheduleError::Missing("duration"))?;
    let duration: SignedDuration = written.parse()?;
    u32::try_from(duration.as_mins())
        .ok()
        .filter(|minutes| *minutes > 0 && duration <= MAX_DURATION)
        .ok_or_else(|| ScheduleError::Length(written.to_owned()))
}

fn flags(schedule: &ScheduledUpdate) -> Result<BTreeSet<String>, ScheduleError> {
    let is_word = |flag: &str| {
        !flag.is_empty() && flag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut flags: BTreeSet<_> = REQUIRED_FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
    for flag in schedule.flags.iter().flatten() {
        if !is_word(flag.trim()) {
            return Err(ScheduleError::Flag(flag.clone()));
        }
        flags.insert(flag.trim().to_ascii_uppercase());
    }
    Ok(flags)
}
