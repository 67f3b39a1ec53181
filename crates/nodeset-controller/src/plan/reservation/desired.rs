//! The reservation that a NodeSet wishes for: read from its spec, written into its status, compared with Slurm's.

use crate::plan::update::reservation_name;
use jiff::{SignedDuration, Timestamp};
use slinky_api::TypeMismatch;
use slinky_api::v1beta1::{NodeSet, ScheduledUpdate};
use slurm_rest::{Reservation, ReservationRequest};
use std::collections::BTreeSet;
use std::fmt;

/// What every reservation of ours is: it takes nodes out of service, whatever runs there.
const ALWAYS: [&str; 2] = ["IGNORE_JOBS", "MAINT"];
/// Takes a start that has passed.
const FORCE_START: &str = "FORCE_START";
/// Flags of reservations that come back. Slurm moves the start of such a one each time.
const REPEATING: [&str; 5] = ["DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY"];
/// Flags that an update can also take back, by `NO_` and the flag. Only these are compared: Slurm keeps others for ever, or
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
/// Who may use it: nobody who has jobs.
const USER: &str = "slurm";
/// The longest one. Slurm counts seconds in 32 bits, and what does not fit it cuts without a word.
const LONGEST: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Why there is no reservation, or not the one that the spec asks for.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A field has no value.
    #[error("spec.updateStrategy.scheduledUpdate.{0} is missing")]
    Missing(&'static str),
    /// The start is not a time.
    #[error("spec.updateStrategy.scheduledUpdate.startTime")]
    StartTime(#[from] TypeMismatch),
    /// The duration is not one.
    #[error("spec.updateStrategy.scheduledUpdate.duration")]
    Duration(#[from] jiff::Error),
    /// The duration is one that Slurm would take for something else: no minute at all is for ever.
    #[error("spec.updateStrategy.scheduledUpdate.duration: {0} is not between a minute and a year")]
    Length(String),
    /// A flag is not a word.
    #[error("spec.updateStrategy.scheduledUpdate.flags: {0:?} is not a flag")]
    Flag(String),
    /// Slurm refuses that.
    #[error("spec.updateStrategy.scheduledUpdate.flags: FORCE_START needs one of {}", REPEATING.join(", "))]
    ForcedOnce,
    /// Slurm takes no start in the past.
    #[error(
        "spec.updateStrategy.scheduledUpdate.startTime: {0} has passed, and workers keep their old template"
    )]
    Passed(Timestamp),
    /// Somebody else made it.
    #[error(
        "Slurm has a reservation {0} that was not made for this NodeSet: delete it, or give this one another name"
    )]
    NameTaken(String),
}

impl ScheduleError {
    /// A fixed name, for metrics and conditions.
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

/// The reservation that a NodeSet wishes for, apart from its nodes. Its text is what the status remembers of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredReservation {
    name: String,
    start: Timestamp,
    minutes: u32,
    flags: BTreeSet<String>,
}

impl DesiredReservation {
    /// Reads it from the spec.
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

    /// When it begins, for the first time if it repeats.
    pub const fn start(&self) -> Timestamp {
        self.start
    }

    /// Whether it comes back again and again.
    fn repeats(&self) -> bool {
        REPEATING.iter().any(|flag| self.flags.contains(*flag))
    }

    /// Whether Slurm takes a new reservation like this now.
    pub fn may_be_made(&self, now: Timestamp) -> bool {
        let length = SignedDuration::from_mins(self.minutes.into());
        self.start >= now || (self.flags.contains(FORCE_START) && now.duration_since(self.start) < length)
    }

    /// Whether a reservation is what is wished for. `remembered` is what the status says of it.
    pub fn is_fulfilled_by(&self, found: &Reservation, remembered: &str) -> bool {
        found.start_time == Some(self.next_start(found, remembered))
            && minutes_of(found) == Some(self.minutes.into())
            && REVOCABLE.iter().all(|flag| self.flags.contains(*flag) == has_flag(found, flag))
    }

    /// When a reservation that is there should begin next: as Slurm has moved it, unless it is known to come from a desired
    /// with another start.
    pub fn next_start(&self, found: &Reservation, remembered: &str) -> Timestamp {
        let same_start =
            remembered.is_empty() || remembered.starts_with(&beginning(&self.name, Some(self.start)));
        let moved = found.start_time.filter(|start| self.repeats() && same_start && *start > self.start);
        moved.unwrap_or(self.start)
    }

    /// The request that makes it.
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

    /// The request that makes it of the reservation that is there, with its next start.
    pub fn change(&self, found: &Reservation, start: Timestamp, nodes: Vec<String>) -> ReservationRequest {
        let mut request = ReservationRequest { start, ..self.request(nodes) };
        let excess = REVOCABLE.iter().filter(|flag| has_flag(found, flag) && !self.flags.contains(**flag));
        request.flags.extend(excess.map(|flag| format!("NO_{flag}")));
        request
    }
}

impl fmt::Display for DesiredReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags: Vec<_> = self.flags.iter().map(String::as_str).collect();
        f.write_str(&text(&self.name, Some(self.start), i64::from(self.minutes), &flags))
    }
}

/// A reservation in the words of a desired.
pub fn describe(found: &Reservation) -> String {
    let mut flags: Vec<_> = found.flags.iter().map(String::as_str).collect();
    flags.sort_unstable();
    text(&found.name, found.start_time, minutes_of(found).unwrap_or_default(), &flags)
}

fn text(name: &str, start: Option<Timestamp>, minutes: i64, flags: &[&str]) -> String {
    format!("{}{minutes} min [{}]", beginning(name, start), flags.join(", "))
}

fn beginning(name: &str, start: Option<Timestamp>) -> String {
    let start = start.map_or_else(|| "at no known time".to_owned(), |start| start.to_string());
    format!("{name} starts {start} for ")
}

fn minutes_of(found: &Reservation) -> Option<i64> {
    let (start, end) = found.start_time.zip(found.end_time)?;
    Some(end.duration_since(start).as_mins())
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
        .filter(|minutes| *minutes > 0 && duration <= LONGEST)
        .ok_or_else(|| ScheduleError::Length(written.to_owned()))
}

fn flags(schedule: &ScheduledUpdate) -> Result<BTreeSet<String>, ScheduleError> {
    let is_word = |flag: &str| {
        !flag.is_empty() && flag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut flags: BTreeSet<_> = ALWAYS.iter().map(|flag| (*flag).to_owned()).collect();
    for flag in schedule.flags.iter().flatten() {
        if !is_word(flag.trim()) {
            return Err(ScheduleError::Flag(flag.clone()));
        }
        flags.insert(flag.trim().to_ascii_uppercase());
    }
    Ok(flags)
}
