//! Decides when a new configuration replaces the one that is in force. Pure.
//!
//! Where a slurmctld runs, changes that come one after the other take effect together, and slurmctld tries the result
//! first. Where none runs there is nothing to lose, and nothing to wait for.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::ResourceExt;
use slinky_api::labels::annotations;
use std::time::Duration;

/// The longest that changes may put off the changes before them.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// How long a check may take, from the wish to its end.
const LONGEST_CHECK: SignedDuration = SignedDuration::from_secs(75);
/// The exit code by which a check says that slurmctld refuses the configuration.
const REFUSED: i32 = 3;

/// A change that is waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// What would take effect.
    id: String,
    /// When the first change came.
    first: Timestamp,
    /// When the last one came.
    last: Timestamp,
}

/// What to do about a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is in force.
    Keep,
    /// Put it into force; the note says why nobody could tell whether slurmctld takes it.
    Write(Option<String>),
    /// Wait for further changes.
    Settle(Duration),
    /// Have it checked.
    Check,
    /// Wait for the check, at most this long.
    AwaitCheck(Duration),
    /// Leave the old one: slurmctld refuses this one, for the reason given.
    Refuse(String),
}

/// What the decision depends on.
pub struct Situation<'a> {
    /// Stands for the configuration and the pod that would run with it.
    pub id: &'a str,
    /// The configuration is the one in force.
    pub is_in_force: bool,
    /// A slurmctld runs.
    pub is_running: bool,
    /// The check pod.
    pub check: Option<&'a Pod>,
    /// The change that was waiting before.
    pub pending: Option<&'a Pending>,
    /// How long to wait for further changes.
    pub delay: Duration,
    /// The time.
    pub now: Timestamp,
}

/// Decides; gives also the change that is waiting now.
pub fn decide(situation: &Situation<'_>) -> (Step, Option<Pending>) {
    if situation.is_in_force {
        return (Step::Keep, None);
    }
    if !situation.is_running {
        return (Step::Write(None), None);
    }
    let Situation { id, now, .. } = *situation;
    let fresh = Pending { id: id.to_owned(), first: now, last: now };
    let pending = match situation.pending {
        None => fresh,
        Some(pending) if pending.id == id => pending.clone(),
        Some(pending) => Pending { first: pending.first, ..fresh },
    };
    if let Some(check) = situation.check.filter(|check| is_about(check, id)) {
        // It has waited already, perhaps before this process was started.
        return (judge(check, now), Some(pending));
    }
    let delay = SignedDuration::try_from(situation.delay).unwrap_or(LONGEST_DELAY);
    let quiet = delay - now.duration_since(pending.last);
    let limit = LONGEST_DELAY - now.duration_since(pending.first);
    let left = quiet.min(limit);
    if left.is_positive() {
        return (Step::Settle(left.unsigned_abs()), Some(pending));
    }
    (Step::Check, Some(pending))
}

fn is_about(check: &Pod, id: &str) -> bool {
    check.annotations().get(annotations::CONFIG).is_some_and(|checked| checked == id)
}

/// What the check says.
fn judge(pod: &Pod, now: Timestamp) -> Step {
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => return Step::Write(None),
        Some("Failed") => {
            return match ended(pod) {
                Some(end) if end.exit_code == REFUSED => {
                    Step::Refuse(end.message.unwrap_or_else(|| "no reason given".to_owned()))
                }
                _ => {
                    let reason = status.reason.as_deref().unwrap_or("the check broke off");
                    Step::Write(Some(format!("the configuration could not be checked ({reason})")))
                }
            };
        }
        _ => {}
    }
    let since = pod.creation_timestamp().map_or(now, |time| time.0);
    let left = LONGEST_CHECK - now.duration_since(since);
    if left.is_positive() {
        Step::AwaitCheck(left.unsigned_abs())
    } else {
        Step::Write(Some(
            "the configuration could not be checked (the check pod did not get to run)".to_owned(),
        ))
    }
}

fn ended(pod: &Pod) -> Option<ContainerStateTerminated> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn pending(id: &str, first: i64, last: i64) -> Pending {
        Pending { id: id.to_owned(), first: second(first), last: second(last) }
    }

    fn check(id: &str, status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "creationTimestamp": second(0).to_string(),
                "annotations": { annotations::CONFIG: id },
            },
            "status": status,
        }))
        .unwrap()
    }

    fn exit(code: i32, message: &str) -> Value {
        let state = json!({ "terminated": { "exitCode": code, "message": message } });
        json!({ "phase": "Failed", "containerStatuses": [
            { "name": "check", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state },
        ] })
    }

    fn situation<'a>(pending: Option<&'a Pending>, check: Option<&'a Pod>, now: i64) -> Situation<'a> {
        Situation {
            id: "new",
            is_in_force: false,
            is_running: true,
            check,
            pending,
            delay: Duration::from_secs(5),
            now: second(now),
        }
    }

    #[test]
    fn what_is_in_force_stays() {
        let old = pending("old", 0, 0);
        let situation = Situation { is_in_force: true, ..situation(Some(&old), None, 0) };
        assert_eq!(decide(&situation), (Step::Keep, None));
    }

    #[test]
    fn where_nothing_runs_there_is_nothing_to_wait_for() {
        let situation = Situation { is_running: false, ..situation(None, None, 0) };
        assert_eq!(decide(&situation), (Step::Write(None), None));
    }

    #[rstest]
    #[case::the_first_change(None, 0, Step::Settle(Duration::from_secs(5)), pending("new", 0, 0))]
    #[case::nothing_more_yet(
        Some(pending("new", 0, 0)),
        3,
        Step::Settle(Duration::from_secs(2)),
        pending("new", 0, 0)
    )]
    #[case::another_change(
        Some(pending("old", 0, 0)),
        3,
        Step::Settle(Duration::from_secs(5)),
        pending("new", 0, 3)
    )]
    #[case::calm(Some(pending("new", 0, 3)), 8, Step::Check, pending("new", 0, 3))]
    #[case::never_calm(
        Some(pending("old", 0, 57)),
        58,
        Step::Settle(Duration::from_secs(2)),
        pending("new", 0, 58)
    )]
    #[case::long_enough(Some(pending("old", 0, 58)), 60, Step::Check, pending("new", 0, 60))]
    fn changes_wait_for_each_other_but_not_for_ever(
        #[case] before: Option<Pending>,
        #[case] now: i64,
        #[case] step: Step,
        #[case] after: Pending,
    ) {
        assert_eq!(decide(&situation(before.as_ref(), None, now)), (step, Some(after)));
    }

    #[rstest]
    #[case::none(None, 6, Step::Check)]
    #[case::of_another(Some(check("old", &json!({ "phase": "Succeeded" }))), 6, Step::Check)]
    #[case::running(Some(check("new", &json!({ "phase": "Running" }))), 6, Step::AwaitCheck(Duration::from_secs(69)))]
    #[case::taken(Some(check("new", &json!({ "phase": "Succeeded" }))), 6, Step::Write(None))]
    #[case::refused(Some(check("new", &exit(3, "fatal: no"))), 6, Step::Refuse("fatal: no".to_owned()))]
    fn slurmctld_has_the_say(#[case] check: Option<Pod>, #[case] now: i64, #[case] step: Step) {
        let waiting = pending("new", 0, 0);
        assert_eq!(decide(&situation(Some(&waiting), check.as_ref(), now)).0, step);
    }

    #[test]
    fn a_change_that_was_checked_does_not_wait_again_after_a_restart() {
        let refused = check("new", &exit(3, "fatal: no"));
        let (step, _) = decide(&situation(None, Some(&refused), 6));
        assert_eq!(step, Step::Refuse("fatal: no".to_owned()));
    }

    #[rstest]
    #[case::it_broke(check("new", &exit(1, "")), 6)]
    #[case::it_was_evicted(check("new", &json!({ "phase": "Failed", "reason": "Evicted" })), 6)]
    #[case::it_never_ran(check("new", &json!({ "phase": "Pending" })), 80)]
    fn a_check_that_tells_nothing_stops_nothing(#[case] check: Pod, #[case] now: i64) {
        let waiting = pending("new", 0, 0);
        let (step, _) = decide(&situation(Some(&waiting), Some(&check), now));
        assert!(matches!(&step, Step::Write(Some(_))), "{step:?}");
    }
}
