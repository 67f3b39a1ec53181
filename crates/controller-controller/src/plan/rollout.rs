//! Decides when a changed configuration replaces the one in force.
//!
//! While slurmctld runs, changes within a short time take effect together, and a check pod tries the result first. Before
//! slurmctld has run there is nothing to protect, so the configuration is written at once.

use crate::observe::PendingChange;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::ResourceExt;
use slinky_api::labels::annotations::{self, ACCEPTED_CONFIG};
use std::time::Duration;

/// The longest that further changes can delay the first one.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_secs(60);
/// How long a check may take, from the creation of its pod.
const CHECK_TIMEOUT: SignedDuration = SignedDuration::from_secs(75);
/// The exit code of the check script when slurmctld refuses the configuration.
const REFUSED: i32 = 3;
/// The exit code of the check script when it cannot tell.
const INCONCLUSIVE: i32 = 4;

/// What is done with the rendered configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is in force.
    Keep,
    /// It is written. The note says why no check confirmed that slurmctld accepts it.
    Write(Option<String>),
    /// It waits this long for further changes.
    Settle(Duration),
    /// A check pod is created.
    Check,
    /// It waits for the check pod, at most this long.
    AwaitCheck(Duration),
    /// The old one stays in force: slurmctld refuses this one for the given reason.
    Refuse(String),
}

impl Decision {
    /// True if the rendered configuration is in force after this reconcile.
    pub fn is_in_force(&self) -> bool {
        match self {
            Self::Keep | Self::Write(_) => true,
            Self::Settle(_) | Self::Check | Self::AwaitCheck(_) | Self::Refuse(_) => false,
        }
    }
}

/// The inputs of a decision.
pub struct Situation<'a> {
    /// Hash of the rendered configuration and of the pod template that would run with it.
    pub id: &'a str,
    /// The rendered configuration is the one in force.
    pub is_in_force: bool,
    /// slurmctld runs, or has run before.
    pub is_running: bool,
    /// A user lets the configuration through although the check refuses it.
    pub is_accepted: bool,
    /// The check pod.
    pub check: Option<&'a Pod>,
    /// The change that was pending after the last reconcile.
    pub pending: Option<&'a PendingChange>,
    /// How long to wait for further changes.
    pub delay: Duration,
    /// The time.
    pub now: Timestamp,
}

/// The decision, and the change that is pending after it.
pub fn decide(situation: &Situation<'_>) -> (Decision, Option<PendingChange>) {
    if situation.is_in_force {
        return (Decision::Keep, None);
    }
    if !situation.is_running {
        return (Decision::Write(None), None);
    }
    let Situation { id, now, .. } = *situation;
    let fresh = PendingChange { id: id.to_owned(), first: now, last: now, check_rejection: None };
    let pending = match situation.pending {
        None => fresh,
        Some(pending) if pending.id == id => pending.clone(),
        Some(pending) => PendingChange { first: pending.first, ..fresh },
    };
    if let Some(check) = situation.check.filter(|check| is_about(check, id)) {
        // The change has waited already, perhaps before this process was started.
        let mut decision = judge(check, now);
        if let (Decision::Refuse(reason), true) = (&decision, situation.is_accepted) {
            let note = format!("{ACCEPTED_CONFIG} lets it through although slurmctld refused it ({reason})");
            decision = Decision::Write(Some(note));
        }
        return (decision, Some(pending));
    }
    let delay = SignedDuration::try_from(situation.delay).unwrap_or(LONGEST_DELAY);
    let quiet = delay - now.duration_since(pending.last);
    let limit = LONGEST_DELAY - now.duration_since(pending.first);
    let left = quiet.min(limit);
    if left.is_positive() {
        return (Decision::Settle(left.unsigned_abs()), Some(pending));
    }
    let decision = match &pending.check_rejection {
        Some(rejection) => unchecked(rejection),
        None => Decision::Check,
    };
    (decision, Some(pending))
}

/// The configuration is written although no check shows whether slurmctld accepts it: a change must not wait for ever.
fn unchecked(reason: &str) -> Decision {
    Decision::Write(Some(format!("the configuration could not be checked ({reason})")))
}

fn is_about(check: &Pod, id: &str) -> bool {
    check.annotations().get(annotations::CONFIG).is_some_and(|checked| checked == id)
}

/// The decision that follows from the state of the check pod.
fn judge(pod: &Pod, now: Timestamp) -> Decision {
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => return Decision::Write(None),
        Some("Failed") => {
            return match ended(pod) {
                Some(end) if end.exit_code == REFUSED => {
                    Decision::Refuse(end.message.unwrap_or_else(|| "no reason given".to_owned()))
                }
                Some(ContainerStateTerminated { exit_code: INCONCLUSIVE, message: Some(reason), .. }) => {
                    unchecked(reason.trim())
                }
                _ => unchecked(status.reason.as_deref().unwrap_or("the check pod failed")),
            };
        }
        _ => {}
    }
    let since = pod.creation_timestamp().map_or(now, |time| time.0);
    let left = CHECK_TIMEOUT - now.duration_since(since);
    if left.is_positive() {
        Decision::AwaitCheck(left.unsigned_abs())
    } else {
        unchecked("the check pod did not finish in time")
    }
}

fn ended(pod: &Pod) -> Option<ContainerStateTerminated> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.terminated.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::second;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pending(id: &str, first: i64, last: i64) -> PendingChange {
        PendingChange { id: id.to_owned(), first: second(first), last: second(last), check_rejection: None }
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

    fn situation<'a>(pending: Option<&'a PendingChange>, check: Option<&'a Pod>, now: i64) -> Situation<'a> {
        Situation {
            id: "new",
            is_in_force: false,
            is_running: true,
            is_accepted: false,
            check,
            pending,
            delay: Duration::from_secs(5),
            now: second(now),
        }
    }

    #[test]
    fn configuration_in_force_is_kept() {
        let old = pending("old", 0, 0);
        let situation = Situation { is_in_force: true, ..situation(Some(&old), None, 0) };
        assert_eq!(decide(&situation), (Decision::Keep, None));
    }

    #[test]
    fn configuration_is_written_at_once_before_slurmctld_has_run() {
        let situation = Situation { is_running: false, ..situation(None, None, 0) };
        assert_eq!(decide(&situation), (Decision::Write(None), None));
    }

    #[rstest]
    #[case::first_change(None, 0, Decision::Settle(Duration::from_secs(5)), pending("new", 0, 0))]
    #[case::no_further_change(
        Some(pending("new", 0, 0)),
        3,
        Decision::Settle(Duration::from_secs(2)),
        pending("new", 0, 0)
    )]
    #[case::further_change_restarts_the_delay(
        Some(pending("old", 0, 0)),
        3,
        Decision::Settle(Duration::from_secs(5)),
        pending("new", 0, 3)
    )]
    #[case::delay_passed(Some(pending("new", 0, 3)), 8, Decision::Check, pending("new", 0, 3))]
    #[case::delay_ends_at_its_limit(
        Some(pending("old", 0, 57)),
        58,
        Decision::Settle(Duration::from_secs(2)),
        pending("new", 0, 58)
    )]
    #[case::limit_passed(Some(pending("old", 0, 58)), 60, Decision::Check, pending("new", 0, 60))]
    fn changes_are_debounced_up_to_a_limit(
        #[case] before: Option<PendingChange>,
        #[case] now: i64,
        #[case] decision: Decision,
        #[case] after: PendingChange,
    ) {
        assert_eq!(decide(&situation(before.as_ref(), None, now)), (decision, Some(after)));
    }

    #[rstest]
    #[case::no_check_pod(None, 6, Decision::Check)]
    #[case::check_of_another_change(Some(check("old", &json!({ "phase": "Succeeded" }))), 6, Decision::Check)]
    #[case::running(Some(check("new", &json!({ "phase": "Running" }))), 6, Decision::AwaitCheck(Duration::from_secs(69)))]
    #[case::succeeded(Some(check("new", &json!({ "phase": "Succeeded" }))), 6, Decision::Write(None))]
    #[case::refused(Some(check("new", &exit(3, "fatal: no"))), 6, Decision::Refuse("fatal: no".to_owned()))]
    fn decision_follows_the_check_pod(
        #[case] check: Option<Pod>,
        #[case] now: i64,
        #[case] decision: Decision,
    ) {
        let waiting = pending("new", 0, 0);
        assert_eq!(decide(&situation(Some(&waiting), check.as_ref(), now)).0, decision);
    }

    #[test]
    fn user_lets_a_refused_configuration_through() {
        let refused = check("new", &exit(3, "fatal: no"));
        let waiting = pending("new", 0, 0);
        let accepted = Situation { is_accepted: true, ..situation(Some(&waiting), Some(&refused), 6) };
        let note = "controller.slinky.slurm.net/accepted-config lets it through although slurmctld refused it (fatal: no)";
        assert_eq!(decide(&accepted).0, Decision::Write(Some(note.to_owned())));
        let unchecked = Situation { check: None, ..accepted };
        assert_eq!(decide(&unchecked).0, Decision::Check, "it is checked nevertheless");
    }

    #[test]
    fn check_says_why_it_is_inconclusive() {
        let inconclusive = check("new", &exit(4, "it hangs\n"));
        let (decision, _) = decide(&situation(None, Some(&inconclusive), 6));
        let note = "the configuration could not be checked (it hangs)";
        assert_eq!(decision, Decision::Write(Some(note.to_owned())));
    }

    #[test]
    fn checked_change_does_not_wait_again_after_a_restart_of_the_controller() {
        let refused = check("new", &exit(3, "fatal: no"));
        let (decision, _) = decide(&situation(None, Some(&refused), 6));
        assert_eq!(decision, Decision::Refuse("fatal: no".to_owned()));
    }

    #[rstest]
    #[case::pod_failed(check("new", &exit(1, "")), 6)]
    #[case::pod_evicted(check("new", &json!({ "phase": "Failed", "reason": "Evicted" })), 6)]
    #[case::pod_never_started(check("new", &json!({ "phase": "Pending" })), 80)]
    fn inconclusive_check_does_not_stop_the_change(#[case] check: Pod, #[case] now: i64) {
        let waiting = pending("new", 0, 0);
        let (decision, _) = decide(&situation(Some(&waiting), Some(&check), now));
        assert!(matches!(&decision, Decision::Write(Some(_))), "{decision:?}");
    }

    #[test]
    fn change_whose_check_pod_was_rejected_is_written_unchecked() {
        let rejected = |id: &str| PendingChange {
            check_rejection: Some("violates PodSecurity".to_owned()),
            ..pending(id, 0, 0)
        };
        let (decision, _) = decide(&situation(Some(&rejected("new")), None, 6));
        let note = "the configuration could not be checked (violates PodSecurity)";
        assert_eq!(decision, Decision::Write(Some(note.to_owned())));
        let (decision, _) = decide(&situation(Some(&rejected("old")), None, 6));
        assert_eq!(decision, Decision::Settle(Duration::from_secs(5)), "another change gets its own check");
    }
}
