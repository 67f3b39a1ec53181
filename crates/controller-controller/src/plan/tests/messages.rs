//! Messages of conditions are for people: rewording them changes neither the plan nor the status.

use super::files;
use crate::build::{Files, Reconfiguration};
use crate::execute::Outcome;
use crate::fixture::{running, second, stateful_set, with_configured, with_record};
use crate::observe::{Observed, Report};
use crate::plan::plan;
use crate::status::status;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use slinky_api::conditions::{Summary, summarise};
use std::sync::{Arc, LazyLock};

const REASONS: [&str; 9] = [
    "Starting",
    "Applied",
    "Reconfiguring",
    "ReconfigureFailed",
    "Unconfirmed",
    "Pending",
    "Checking",
    "Refused",
    "RollingOut",
];

/// The files in force. They do not depend on how slurmctld reads them.
static FILES: LazyLock<Files> = LazyLock::new(|| files(&json!({})));

/// slurmctld runs with the configuration that is rendered without changes of the spec.
fn in_force(is_in_place: bool, is_changed: bool) -> Observed {
    let change = json!({
        "inplaceReconfigure": is_in_place,
        "extraConf": if is_changed { "MinJobAge=2" } else { "" },
    });
    running(&change, &FILES)
}

fn hash() -> String {
    let observed = in_force(true, false);
    observed.in_force().unwrap().hash()
}

/// Arbitrary text, and texts that name the configuration in force or another one.
fn message() -> impl Strategy<Value = String> {
    let hash = hash();
    prop_oneof![
        any::<String>(),
        Just(hash[..12].to_owned()),
        Just(format!("slurmctld runs with configuration {}; line 3: hm", &hash[..12])),
        Just("slurmctld runs with configuration 0123456789ab".to_owned()),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    prop_oneof![
        Just(Report::Applied(hash())),
        Just(Report::Applied("other".to_owned())),
        Just(Report::Refused { config: hash(), reason: "no".to_owned() }),
    ]
}

/// The record of an earlier reconcile.
fn record() -> impl Strategy<Value = Reconfiguration> {
    let config = select(vec![hash(), "other".to_owned()]);
    prop_oneof![
        config.clone().prop_map(|config| Reconfiguration { config, awaited_since: Some(second(0)) }),
        config.prop_map(|config| Reconfiguration { config, awaited_since: None }),
    ]
}

/// The state after a reconcile that wrote conditions with this message.
fn with_message(observed: Observed, reason: &str, message: &str) -> Observed {
    let mut controller = with_configured((*observed.controller).clone(), reason, message, second(0));
    let conditions = &mut controller.status.as_mut().unwrap().conditions;
    summarise(conditions, &Summary::Degraded("Degraded", message.to_owned()), None, second(0));
    Observed { controller: Arc::new(controller), ..observed }
}

proptest! {
    #[test]
    fn reworded_messages_change_neither_plan_nor_status(
        reason in select(&REASONS[..]),
        messages in [message(), message()],
        record in option::of(record()),
        report in option::of(report()),
        now in 0_i64..400,
        is_in_place: bool,
        is_changed: bool,
    ) {
        let results = messages.map(|message| {
            let mut observed = in_force(is_in_place, is_changed);
            if let Some(record) = &record {
                observed = with_record(observed, record);
            }
            observed.report.clone_from(&report);
            let observed = with_message(observed, reason, &message);
            let plan = plan(&observed, second(now));
            let outcome = Outcome {
                stateful_set: Some(stateful_set(&json!({}), true)),
                check_rejection: None,
                monitoring: None,
                result: Ok(()),
            };
            let status = status(&observed, &plan, &outcome, second(now));
            (format!("{plan:?}"), status)
        });
        prop_assert_eq!(&results[0], &results[1]);
    }
}
