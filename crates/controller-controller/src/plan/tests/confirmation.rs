//! Whether slurmctld has read a configuration in place.

use super::super::config::ConfigPlan;
use super::files;
use crate::fixture::{observed, running, second, stateful_set, with_configured};
use crate::observe::{Observed, Report};
use crate::plan::{Confirmation, plan};
use rstest::rstest;
use serde_json::json;
use std::sync::Arc;

/// slurmctld runs with the rendered configuration.
fn in_force() -> Observed {
    running(&json!({ "inplaceReconfigure": true }), &files(&json!({})))
}

fn hash() -> String {
    let observed = in_force();
    observed.config_hash(observed.files().unwrap())
}

fn config_at(observed: &Observed, now: i64) -> ConfigPlan {
    plan(observed, second(now)).config.unwrap()
}

/// The condition `Configured` was set to `reason` about `config` at second 0.
fn after(reason: &str, config: &str) -> Observed {
    let observed = in_force();
    let controller = with_configured((*observed.controller).clone(), reason, config, second(0));
    Observed { controller: Arc::new(controller), ..observed }
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
#[case::confirmed("Applied", &hash(), 9999, Confirmation::Confirmed)]
#[case::before_the_timeout("Reconfiguring", &hash(), 180, Confirmation::Awaited)]
#[case::after_the_timeout("Reconfiguring", &hash(), 181, Confirmation::TimedOut)]
#[case::long_after_the_timeout("Unconfirmed", &hash(), 9999, Confirmation::TimedOut)]
#[case::change_after_the_timeout("Unconfirmed", "other", 9999, Confirmation::Awaited)]
#[case::change_after_a_refusal("ReconfigureFailed", "other", 9999, Confirmation::Awaited)]
#[case::change_after_a_failed_check("Refused", &hash(), 9999, Confirmation::Awaited)]
#[case::change_of_a_confirmed_one("Applied", "other", 9999, Confirmation::Awaited)]
fn each_configuration_has_the_whole_timeout(
    #[case] reason: &str,
    #[case] config: &str,
    #[case] now: i64,
    #[case] expected: Confirmation,
) {
    assert_eq!(config_at(&after(reason, config), now).confirmation, Some(expected));
}
