//! Whether slurmctld has read a configuration in place.

use super::super::config::ConfigPlan;
use super::{applied_set, config_of, files};
use crate::build::Reconfiguration;
use crate::fixture::{observed, running, second, stateful_set, with_configured, with_record};
use crate::observe::{Observed, PendingChange, Report};
use crate::plan::{Confirmation, Decision, Plan, plan};
use rstest::rstest;
use serde_json::json;
use std::sync::Arc;

/// slurmctld runs with the rendered configuration.
fn in_force() -> Observed {
    running(&json!({ "inplaceReconfigure": true }), &files(&json!({})))
}

fn hash() -> String {
    let observed = in_force();
    observed.in_force().unwrap().hash()
}

fn config_at(observed: &Observed, now: i64) -> ConfigPlan {
    plan(observed, second(now)).config.unwrap()
}

fn awaited(config: &str) -> Reconfiguration {
    Reconfiguration { config: config.to_owned(), awaited_since: Some(second(0)) }
}

fn confirmed(config: &str) -> Reconfiguration {
    Reconfiguration { config: config.to_owned(), awaited_since: None }
}

/// The record that a plan writes.
fn planned_record(plan: &Plan) -> Option<Reconfiguration> {
    Reconfiguration::of(config_of(plan))
}

#[rstest]
#[case::none(None, Confirmation::Awaited)]
#[case::applied(Some(Report::Applied(hash())), Confirmation::Confirmed)]
#[case::other_applied(Some(Report::Applied("other".to_owned())), Confirmation::Awaited)]
#[case::refused(
    Some(Report::Refused { config: hash(), reason: "no".to_owned() }),
    Confirmation::Refused("no".to_owned())
)]
#[case::other_refused(
    Some(Report::Refused { config: "other".to_owned(), reason: "no".to_owned() }),
    Confirmation::Awaited
)]
fn report_about_the_configuration_in_force_counts(
    #[case] report: Option<Report>,
    #[case] expected: Confirmation,
) {
    let config = config_at(&Observed { report, ..in_force() }, 0);
    assert_eq!(config.confirmation, Some(expected));
}

#[test]
fn nothing_is_awaited_before_slurmctld_has_started() {
    let starting = Observed { stateful_set: Some(Arc::new(stateful_set(&json!({}), false))), ..in_force() };
    assert_eq!(config_at(&starting, 0).confirmation, None);
}

#[test]
fn nothing_is_awaited_of_a_slurmctld_that_is_restarted_for_each_change() {
    let restarted = Observed { controller: observed(&json!({})).controller, ..in_force() };
    assert_eq!(config_at(&restarted, 0).confirmation, None);
}

#[rstest]
#[case::confirmed(confirmed(&hash()), 9999, Confirmation::Confirmed)]
#[case::before_the_timeout(awaited(&hash()), 180, Confirmation::Awaited)]
#[case::after_the_timeout(awaited(&hash()), 181, Confirmation::TimedOut)]
#[case::change_of_an_awaited_one(awaited("other"), 9999, Confirmation::Awaited)]
#[case::change_of_a_confirmed_one(confirmed("other"), 9999, Confirmation::Awaited)]
fn each_configuration_has_the_whole_timeout(
    #[case] record: Reconfiguration,
    #[case] now: i64,
    #[case] expected: Confirmation,
) {
    let plan = plan(&with_record(in_force(), &record), second(now));
    let hash = hash();
    let recorded = match &expected {
        Confirmation::Confirmed => confirmed(&hash),
        Confirmation::Awaited if record == awaited("other") || record == confirmed("other") => {
            Reconfiguration { config: hash, awaited_since: Some(second(now)) }
        }
        Confirmation::Awaited | Confirmation::TimedOut | Confirmation::Refused(_) => awaited(&hash),
    };
    assert_eq!(plan.config.as_ref().unwrap().confirmation, Some(expected));
    assert_eq!(planned_record(&plan), Some(recorded), "the record follows");
}

#[test]
fn record_starts_with_the_files_that_it_is_about() {
    let change = json!({ "inplaceReconfigure": true, "extraConf": "MinJobAge=2" });
    let pending = with_record(running(&change, &files(&json!({}))), &confirmed(&hash()));
    let undecided = plan(&pending, second(0));
    assert_eq!(planned_record(&undecided), Some(confirmed(&hash())), "a pending change is no new one");

    let unchecked = Observed {
        pending: undecided
            .pending
            .map(|pending| PendingChange { check_rejection: Some("forbidden".to_owned()), ..pending }),
        ..with_record(running(&change, &files(&json!({}))), &confirmed(&hash()))
    };
    let written = plan(&unchecked, second(5));
    let config = written.config.as_ref().unwrap();
    assert!(matches!(config.decision, Decision::Write(_)) && config.hash != hash());
    let expected = Reconfiguration { config: config.hash.clone(), awaited_since: Some(second(5)) };
    assert_eq!(planned_record(&written), Some(expected));
}

#[test]
fn record_about_files_that_were_edited_by_hand_is_dropped() {
    let mut edited = files(&json!({}));
    edited.insert("slurm.conf".to_owned(), "SlurmUser=root".to_owned());
    let observed = running(&json!({ "inplaceReconfigure": true }), &edited);
    let plan = plan(&with_record(observed, &confirmed(&hash())), second(0));
    assert!(!plan.config.as_ref().unwrap().decision.is_in_force());
    assert_eq!(planned_record(&plan), None);
}

#[test]
fn confirmed_record_is_written_once() {
    let report = Some(Report::Applied(hash()));
    let first = plan(&Observed { report, ..with_record(in_force(), &awaited(&hash())) }, second(9));
    let written = config_of(&first).clone();
    let idle = plan(&Observed { config: Some(Arc::new(written.clone())), ..in_force() }, second(99));
    assert_eq!(config_of(&idle), &written);
}

/// Earlier versions kept no record, only a condition whose message named the configuration.
#[test]
fn state_of_an_earlier_version_costs_one_confirmation_and_no_restart() {
    let unrecorded = |report| {
        let observed = in_force();
        let controller = with_configured((*observed.controller).clone(), "Applied", &hash(), second(0));
        Observed { controller: Arc::new(controller), report, ..observed }
    };
    let template = |plan: &Plan| applied_set(plan).unwrap().as_json()["spec"]["template"].clone();
    let recorded = plan(&with_record(in_force(), &confirmed(&hash())), second(9));
    for (report, expected) in
        [(None, Confirmation::Awaited), (Some(Report::Applied(hash())), Confirmation::Confirmed)]
    {
        let plan = plan(&unrecorded(report), second(9));
        let config = plan.config.as_ref().unwrap();
        assert_eq!((&config.decision, &config.confirmation), (&Decision::Keep, &Some(expected)));
        assert_eq!(config_of(&plan).data, config_of(&recorded).data);
        assert_eq!(template(&plan), template(&recorded));
    }
}
