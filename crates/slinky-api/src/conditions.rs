//! Condition types, and operations on the condition list of a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The object matches its spec.
pub const READY: &str = "Ready";
/// A change is being rolled out.
pub const PROGRESSING: &str = "Progressing";
/// An error that needs a user, or a missing reference.
pub const DEGRADED: &str = "Degraded";
/// slurmctld runs with the configuration of the spec.
pub const CONFIGURED: &str = "Configured";
/// One of several slurmctld daemons reports to be active.
pub const ACTIVE_REPORTED: &str = "ActiveReported";
/// A ServiceMonitor makes Prometheus scrape the metrics.
pub const MONITORED: &str = "Monitored";
/// Slurm answers, so the state of its nodes is known.
pub const SLURM_REACHABLE: &str = "SlurmReachable";
/// A Slurm reservation for a scheduled update exists.
pub const RESERVATION_CREATED: &str = "ReservationCreated";
/// The token of a Token expires within an hour and was not renewed, or has expired.
pub const EXPIRING: &str = "Expiring";

/// A partition that was removed from a NodeSet must stay in Slurm because jobs name it. `False` with the current
/// observedGeneration: it may be removed.
pub const PARTITION_HELD: &str = "PartitionHeld";

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It is not known.
    Unknown,
}

impl ConditionStatus {
    /// The value in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionUpdate {
    /// The condition's type.
    pub type_: &'static str,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The message for users.
    pub message: String,
}

/// Longest message that the schema allows.
const LONGEST_MESSAGE: usize = 32_768;

/// Sets one condition. The transition time changes only with the status, so that an unchanged condition stays equal.
pub fn set(
    conditions: &mut Vec<Condition>,
    update: ConditionUpdate,
    generation: Option<i64>,
    now: Timestamp,
) {
    let existing = conditions.iter_mut().find(|condition| condition.type_ == update.type_);
    let since = match &existing {
        Some(condition) if condition.status == update.status.as_str() => {
            condition.last_transition_time.clone()
        }
        _ => Time(whole_seconds(now)),
    };
    let new = Condition {
        type_: update.type_.to_owned(),
        status: update.status.as_str().to_owned(),
        reason: update.reason.to_owned(),
        message: truncated(update.message),
        observed_generation: generation,
        last_transition_time: since,
    };
    match existing {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
}

/// The overall state of an object, which determines the three conditions that every kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Summary {
    /// The object matches its spec: the message, such as the number of ready pods.
    Ready(String),
    /// A change is being rolled out: reason and message.
    Progressing(&'static str, String),
    /// An error, or a missing reference: reason and message.
    Degraded(&'static str, String),
}

/// Reason of `Ready=True`, `Progressing=False` and `Degraded=False`.
pub const AS_EXPECTED: &str = "AsExpected";
/// Message of `Progressing=False`.
pub const NOT_PROGRESSING: &str = "no change is being rolled out";
/// Message of `Degraded=False`.
pub const NOT_DEGRADED: &str = "no errors";

/// Sets [`READY`], [`PROGRESSING`] and [`DEGRADED`].
pub fn summarise(
    conditions: &mut Vec<Condition>,
    summary: &Summary,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (holding, reason, message) = match summary {
        Summary::Ready(message) => (READY, AS_EXPECTED, message.as_str()),
        Summary::Progressing(reason, message) => (PROGRESSING, *reason, message.as_str()),
        Summary::Degraded(reason, message) => (DEGRADED, *reason, message.as_str()),
    };
    // Ready=False repeats the reason and message of the condition that holds instead.
    for (type_, message_if_false) in
        [(READY, None), (PROGRESSING, Some(NOT_PROGRESSING)), (DEGRADED, Some(NOT_DEGRADED))]
    {
        let holds = type_ == holding;
        let (reason, message) = match message_if_false {
            Some(fixed) if !holds => (AS_EXPECTED, fixed),
            _ => (reason, message),
        };
        let update = ConditionUpdate { type_, status: holds.into(), reason, message: message.to_owned() };
        set(conditions, update, generation, now);
    }
}

/// Removes one condition.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

/// One condition of the list.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// True if the condition exists with status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == ConditionStatus::True.as_str())
}

/// metav1.Time has no fractions; a time written with them would differ from the one read back.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn truncated(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: ConditionStatus, message: &str) -> ConditionUpdate {
        ConditionUpdate { type_: READY, status, reason: "Because", message: message.to_owned() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millisecond(second * 1000 + 250).unwrap()
    }

    #[test]
    fn transition_time_changes_with_the_status_but_not_with_the_message() {
        let mut conditions = Vec::new();
        set(&mut conditions, ready(ConditionStatus::False, "starting"), Some(1), at(10));
        set(&mut conditions, ready(ConditionStatus::False, "still starting"), Some(2), at(20));
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].last_transition_time.0.as_second(), 10);
        assert_eq!(conditions[0].message, "still starting");
        assert_eq!(conditions[0].observed_generation, Some(2));
        set(&mut conditions, ready(ConditionStatus::True, ""), Some(2), at(30));
        assert_eq!(conditions[0].last_transition_time.0, Timestamp::from_second(30).unwrap());
        assert!(is_true(&conditions, READY));
    }

    #[test]
    fn summary_sets_three_conditions_of_which_one_is_true() {
        let mut conditions = Vec::new();
        let holding = |conditions: &[Condition]| -> Vec<String> {
            conditions.iter().filter(|c| c.status == "True").map(|c| c.type_.clone()).collect()
        };
        for (summary, expected) in [
            (Summary::Ready("1 of 1 pods ready".to_owned()), READY),
            (Summary::Progressing("Starting", "0 of 1 pods".to_owned()), PROGRESSING),
            (Summary::Degraded("SecretMissing", "auth".to_owned()), DEGRADED),
        ] {
            summarise(&mut conditions, &summary, Some(1), at(1));
            assert_eq!(holding(&conditions), [expected]);
            assert_eq!(conditions.len(), 3);
            assert!(conditions.iter().all(|condition| !condition.message.is_empty()));
        }
        let ready = find(&conditions, READY).unwrap();
        assert_eq!((ready.reason.as_str(), ready.message.as_str()), ("SecretMissing", "auth"));
        let progressing = find(&conditions, PROGRESSING).unwrap();
        assert_eq!(
            (progressing.reason.as_str(), progressing.message.as_str()),
            (AS_EXPECTED, NOT_PROGRESSING)
        );
    }

    #[test]
    fn other_conditions_are_kept() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            ConditionUpdate { type_: DEGRADED, ..ready(ConditionStatus::True, "") },
            None,
            at(1),
        );
        set(&mut conditions, ready(ConditionStatus::Unknown, ""), None, at(2));
        remove(&mut conditions, DEGRADED);
        assert_eq!(find(&conditions, DEGRADED), None);
        assert_eq!(find(&conditions, READY).unwrap().status, "Unknown");
    }

    #[test]
    fn long_message_is_truncated_between_characters() {
        let mut conditions = Vec::new();
        set(&mut conditions, ready(ConditionStatus::False, &"é".repeat(20_000)), None, at(1));
        assert_eq!(conditions[0].message.len(), LONGEST_MESSAGE);
        set(&mut conditions, ready(ConditionStatus::False, &format!("a{}", "é".repeat(20_000))), None, at(1));
        assert_eq!(conditions[0].message.len(), LONGEST_MESSAGE - 1);
    }
}
