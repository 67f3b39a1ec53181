//! The conditions that follow from a plan and its outcome.

use super::*;
use crate::active::Poll;
use crate::fixture::{
    SHOWN, config_plan, controller, high_availability, observed, pod, second, stateful_set, with_configured,
};
use crate::plan::PersistenceProblem;
use rstest::rstest;
use serde_json::json;
use slinky_api::conditions::READY;
use slinky_api::v1beta1::RefusedNodeSet;
use std::sync::Arc;
use std::time::Duration;

fn observed_after(controller: Controller) -> Observed {
    Observed { controller: Arc::new(controller), ..observed(&json!({})) }
}

fn plan_with(decision: Decision, confirmation: Option<Confirmation>) -> Plan {
    Plan { config: Some(config_plan(decision, confirmation)), ..Plan::default() }
}

fn kept() -> Plan {
    plan_with(Decision::Keep, None)
}

/// An outcome without failures.
fn outcome(is_ready: bool) -> Outcome {
    Outcome {
        stateful_set: Some(stateful_set(&json!({}), is_ready)),
        check_rejection: None,
        monitoring: None,
        result: Ok(()),
    }
}

fn reason(status: &ControllerStatus, type_: &str) -> Option<String> {
    conditions::find(&status.conditions, type_).map(|condition| condition.reason.clone())
}

fn message(status: &ControllerStatus, type_: &str) -> String {
    conditions::find(&status.conditions, type_).map(|condition| condition.message.clone()).unwrap_or_default()
}

#[rstest]
#[case::waiting(Decision::Settle(Duration::from_secs(1)), true, "Pending", "Reconfiguring")]
#[case::to_be_checked(Decision::Check, true, "Checking", "Reconfiguring")]
#[case::being_checked(Decision::AwaitCheck(Duration::from_secs(1)), true, "Checking", "Reconfiguring")]
#[case::refused(Decision::Refuse("fatal: no".to_owned()), true, "Refused", "ConfigRefused")]
#[case::in_force(Decision::Keep, true, "Applied", "AsExpected")]
#[case::first_start(Decision::Write(None), false, "Starting", "RollingOut")]
fn each_decision_has_its_reason(
    #[case] decision: Decision,
    #[case] is_ready: bool,
    #[case] configured: &str,
    #[case] ready: &str,
) {
    let plan = plan_with(decision, None);
    let status = status(&observed(&json!({})), &plan, &outcome(is_ready), second(0));
    assert_eq!(reason(&status, CONFIGURED).as_deref(), Some(configured));
    assert_eq!(reason(&status, READY).as_deref(), Some(ready));
    let is_applied = configured == "Applied";
    assert_eq!(conditions::is_true(&status.conditions, CONFIGURED), is_applied);
    assert_eq!(conditions::is_true(&status.conditions, READY), is_applied);
}

#[test]
fn refusal_names_the_configuration_that_stays_and_the_reason() {
    let refusal = plan_with(Decision::Refuse("fatal: no".to_owned()), None);
    let status = status(&observed(&json!({})), &refusal, &outcome(true), second(0));
    let expected =
        format!("slurmctld refuses configuration ba9876543210 and keeps configuration {SHOWN}: fatal: no");
    assert_eq!(message(&status, CONFIGURED), expected);
    assert_eq!(message(&status, READY), expected);
}

#[test]
fn restart_after_the_first_start_is_a_rollout() {
    let before = with_configured(controller(&json!({})), "Applied", SHOWN, second(0));
    let status = status(&observed_after(before.clone()), &kept(), &outcome(false), second(9));
    assert_eq!(reason(&status, CONFIGURED).as_deref(), Some("RollingOut"));
    assert!(has_run(&Controller { status: Some(status), ..before }));
    let starting = with_configured(controller(&json!({})), STARTING, SHOWN, second(0));
    assert!(!has_run(&starting) && !has_run(&controller(&json!({}))));
}

#[rstest]
#[case::confirmed(Confirmation::Confirmed, "Applied", "AsExpected")]
#[case::awaited(Confirmation::Awaited, "Reconfiguring", "Reconfiguring")]
#[case::refused(Confirmation::Refused("no such plugin".to_owned()), "ReconfigureFailed", "ReconfigureFailed")]
#[case::timed_out(Confirmation::TimedOut, "Unconfirmed", "AsExpected")]
fn in_place_configuration_is_applied_when_slurmctld_confirms_it(
    #[case] confirmation: Confirmation,
    #[case] configured: &str,
    #[case] ready: &str,
) {
    let observed = observed(&json!({ "inplaceReconfigure": true }));
    let plan = plan_with(Decision::Keep, Some(confirmation));
    let status = status(&observed, &plan, &outcome(true), second(0));
    assert_eq!(reason(&status, CONFIGURED).as_deref(), Some(configured));
    assert_eq!(reason(&status, READY).as_deref(), Some(ready));
}

#[test]
fn in_place_configuration_is_not_applied_without_a_confirmation() {
    let observed = observed(&json!({ "inplaceReconfigure": true }));
    let status = status(&observed, &kept(), &outcome(true), second(0));
    assert_eq!(reason(&status, CONFIGURED).as_deref(), Some("Starting"));
}

#[test]
fn configured_stays_when_the_configuration_cannot_be_rendered() {
    let before = with_configured(controller(&json!({})), "Applied", SHOWN, second(0));
    let status = status(&observed_after(before.clone()), &Plan::default(), &outcome(true), second(9));
    let expected = before.status.unwrap().conditions;
    assert_eq!(conditions::find(&status.conditions, CONFIGURED), expected.first());
}

#[test]
fn external_cluster_is_ready_and_has_no_condition_configured() {
    let change = json!({ "external": true, "externalConfig": { "host": "h", "port": 1 } });
    let before = with_configured(controller(&change), "Applied", SHOWN, second(0));
    let outcome = Outcome { stateful_set: None, ..outcome(false) };
    let plan = plan_with(Decision::Write(None), None);
    let status = status(&observed_after(before), &plan, &outcome, second(9));
    let reasons = (reason(&status, CONFIGURED), reason(&status, READY));
    assert_eq!(reasons, (None, Some("AsExpected".to_owned())));
}

#[test]
fn refused_node_set_is_reported_although_slurmctld_runs() {
    let mut plan = kept();
    let config = plan.config.as_mut().unwrap();
    config.refused_node_sets.push(RefusedNodeSet { name: "a".to_owned(), message: "no".to_owned() });
    config.warnings.push("line 3: hm".to_owned());
    let status = status(&observed(&json!({})), &plan, &outcome(true), second(0));
    assert_eq!(reason(&status, READY).as_deref(), Some("NodeSetRefused"));
    assert_eq!(message(&status, READY), "NodeSet a: no");
    let expected = format!("slurmctld runs with configuration {SHOWN}; NodeSet a: no; line 3: hm");
    assert_eq!(message(&status, CONFIGURED), expected);
}

#[test]
fn configuration_that_no_check_accepted_says_so_while_it_is_in_force() {
    let mut plan = kept();
    plan.config.as_mut().unwrap().unchecked = Some("the configuration could not be checked (no)".to_owned());
    let status = status(&observed(&json!({})), &plan, &outcome(true), second(0));
    assert_eq!(reason(&status, CONFIGURED).as_deref(), Some("Applied"));
    let expected =
        format!("slurmctld runs with configuration {SHOWN}; the configuration could not be checked (no)");
    assert_eq!(message(&status, CONFIGURED), expected);
}

#[test]
fn crash_loop_degrades_the_controller_with_the_last_line_of_the_log() {
    let crash_loop = CrashLoop {
        pod: "slurm-controller-0".to_owned(),
        container: "slurmctld".to_owned(),
        last_line: Some("fatal: no".to_owned()),
    };
    let before = with_configured(controller(&json!({})), "Applied", SHOWN, second(0));
    let crashing = Observed { crash_loop: Some(crash_loop), ..observed_after(before.clone()) };
    let status = status(&crashing, &kept(), &outcome(false), second(9));
    assert_eq!(reason(&status, DEGRADED).as_deref(), Some("CrashLoopBackOff"));
    let expected = "container slurmctld of pod slurm-controller-0 ends again and again: fatal: no";
    assert_eq!(message(&status, DEGRADED), expected);
    let events = transitions(before.status.as_ref(), &status);
    assert_eq!(events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), ["CrashLoopBackOff"]);
    assert!(transitions(Some(&status), &status).is_empty());
}

#[rstest]
#[case::ignored_change(Plan { persistence: Some(PersistenceProblem { reason: "PersistenceUnchanged", message: "kept" }), ..kept() }, outcome(true), "PersistenceUnchanged")]
#[case::not_ready(kept(), outcome(false), "RollingOut")]
#[case::being_deleted(kept(), Outcome { stateful_set: None, ..outcome(true) }, "Replacing")]
fn ready_names_what_the_controller_waits_for(
    #[case] plan: Plan,
    #[case] outcome: Outcome,
    #[case] ready: &str,
) {
    let status = status(&observed(&json!({})), &plan, &outcome, second(0));
    assert_eq!(reason(&status, READY).as_deref(), Some(ready));
}

#[test]
fn refused_node_sets_are_in_the_status_for_their_own_controller() {
    let mut plan = kept();
    let refused = RefusedNodeSet { name: "a".to_owned(), message: "no".to_owned() };
    plan.config.as_mut().unwrap().refused_node_sets.push(refused.clone());
    let after = status(&observed(&json!({})), &plan, &outcome(true), second(0));
    assert_eq!(after.refused_node_sets, [refused]);
    let controller = Controller { status: Some(after), ..controller(&json!({})) };
    let healed = status(&observed_after(controller), &kept(), &outcome(true), second(9));
    assert_eq!(healed.refused_node_sets, []);
}

#[test]
fn ignored_change_of_the_cluster_name_is_reported() {
    let mut plan = kept();
    plan.config.as_mut().unwrap().ignored_name = Some("clusterName cannot change".to_owned());
    let status = status(&observed(&json!({})), &plan, &outcome(true), second(0));
    assert_eq!(reason(&status, READY).as_deref(), Some("ClusterNameUnchanged"));
    assert_eq!(message(&status, READY), "clusterName cannot change");
}

#[rstest]
#[case::single_daemon(json!({}), Poll::default(), None)]
#[case::reported(high_availability(), Poll::of(Some(1), &[0]), Some(("True", "Reported", "slurm-controller-1 reports")))]
#[case::none(high_availability(), Poll::default(), Some(("Unknown", "NoneActive", "keeps slurm-controller-0")))]
#[case::not_answering(high_availability(), Poll::of(None, &[0, 1]),
    Some(("False", "NotAnswering", "no answer on port 6817 from slurm-controller-0, slurm-controller-1")))]
fn condition_says_how_the_active_daemon_is_known(
    #[case] change: serde_json::Value,
    #[case] poll: Poll,
    #[case] expected: Option<(&str, &str, &str)>,
) {
    let pods = [0, 1].map(|ordinal| pod(ordinal, true, &json!({}))).to_vec();
    let observed = Observed { pods, poll, ..observed(&change) };
    let status = status(&observed, &kept(), &outcome(true), second(0));
    let condition = conditions::find(&status.conditions, ACTIVE_REPORTED);
    assert_eq!(
        condition.map(|it| (it.status.as_str(), it.reason.as_str())),
        expected.map(|(status, reason, _)| (status, reason))
    );
    let text = expected.map(|(_, _, text)| text).unwrap_or_default();
    assert!(message(&status, ACTIVE_REPORTED).contains(text), "{:?}", status.conditions);
}

#[rstest]
#[case::not_enabled(None, None)]
#[case::applied(Some(Monitoring::Applied), Some("Applied"))]
#[case::not_installed(Some(Monitoring::NotInstalled), Some("ServiceMonitorUnavailable"))]
#[case::failed(Some(Monitoring::Failed), Some("ServiceMonitorFailed"))]
fn monitored_does_not_affect_ready(#[case] monitoring: Option<Monitoring>, #[case] expected: Option<&str>) {
    let mut before = controller(&json!({}));
    let applied = Outcome { monitoring: Some(Monitoring::Applied), ..outcome(true) };
    before.status = Some(status(&observed_after(before.clone()), &kept(), &applied, second(0)));
    let outcome = Outcome { monitoring, ..outcome(true) };
    let status = status(&observed_after(before), &kept(), &outcome, second(9));
    assert_eq!(reason(&status, MONITORED).as_deref(), expected);
    let is_applied = monitoring == Some(Monitoring::Applied);
    assert_eq!(conditions::is_true(&status.conditions, MONITORED), is_applied);
    assert!(conditions::is_true(&status.conditions, READY));
}

#[rstest]
#[case::first(None, kept(), outcome(true), &["Applied"])]
#[case::unchanged(Some("Applied"), kept(), outcome(true), &[])]
#[case::transitional(Some("Applied"), plan_with(Decision::Check, None), outcome(true), &[])]
#[case::starting(None, plan_with(Decision::Write(None), None), outcome(false), &[])]
#[case::refused(
    Some("Checking"),
    plan_with(Decision::Refuse("no".to_owned()), None),
    outcome(true),
    &["Refused"]
)]
#[case::metrics(
    Some("Applied"),
    kept(),
    Outcome { monitoring: Some(Monitoring::NotInstalled), ..outcome(true) },
    &["ServiceMonitorUnavailable"]
)]
fn only_lasting_transitions_get_an_event(
    #[case] before: Option<&str>,
    #[case] plan: Plan,
    #[case] outcome: Outcome,
    #[case] expected: &[&str],
) {
    let mut controller = controller(&json!({}));
    if let Some(reason) = before {
        let message = format!("slurmctld runs with configuration {SHOWN}");
        controller = with_configured(controller, reason, &message, second(0));
    }
    let after = status(&observed_after(controller.clone()), &plan, &outcome, second(9));
    let published = transitions(controller.status.as_ref(), &after);
    assert_eq!(published.iter().map(|condition| condition.reason.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn status_does_not_change_with_time_alone() {
    let mut before = controller(&json!({}));
    for plan in [kept(), plan_with(Decision::Settle(Duration::from_secs(1)), None)] {
        before.status = Some(status(&observed_after(before.clone()), &plan, &outcome(true), second(0)));
        let after = status(&observed_after(before.clone()), &plan, &outcome(true), second(99));
        assert_eq!(Some(after), before.status);
    }
}
