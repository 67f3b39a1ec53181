//! What a Controller's status says, and what an earlier one said.

use crate::execute::{Configured, Monitoring, Outcome};
use crate::observe::{Observed, Report};
use crate::rollout::Step;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use operator_runtime::Classify;
use pod_builder::{Rollout, stateful_set_rollout};
use slinky_api::conditions::{self, CONFIGURED, ConditionUpdate, MONITORED, Summary, set, summarise};
use slinky_api::v1beta1::{Controller, ControllerStatus};

/// Reason of [`CONFIGURED`] until slurmctld runs for the first time.
const STARTING: &str = "Starting";
/// Reason of [`CONFIGURED`] when slurmctld runs with the configuration.
const APPLIED: &str = "Applied";
/// Reason of [`CONFIGURED`] while slurmctld is told of the configuration.
const RECONFIGURING: &str = "Reconfiguring";
/// Reason of [`CONFIGURED`] when slurmctld did not want to read the configuration.
const FAILED: &str = "ReconfigureFailed";
/// Reason of [`CONFIGURED`] when nobody could tell whether slurmctld took the configuration.
pub const UNCONFIRMED: &str = "Unconfirmed";
/// After this long without a word from the reconfigure container none is awaited any more.
const PATIENCE: SignedDuration = SignedDuration::from_mins(3);

/// The status after a pass.
pub fn status(
    controller: &Controller,
    observed: &Observed,
    outcome: &Outcome,
    now: Timestamp,
) -> ControllerStatus {
    let mut status = controller.status.clone().unwrap_or_default();
    let generation = controller.metadata.generation;
    match outcome.config.as_ref().filter(|_| !controller.spec.external) {
        Some(config) => {
            let verdict = configured(controller, observed, outcome, config, now);
            // Its time tells since when slurmctld has been told of this very configuration.
            if verdict.reason == RECONFIGURING && told_since(controller, &config.name).is_none() {
                conditions::remove(&mut status.conditions, CONFIGURED);
            }
            set(&mut status.conditions, verdict, generation, now);
        }
        // What is in force stays in force; why it is not changed is for the summary to say.
        None if controller.spec.external => conditions::remove(&mut status.conditions, CONFIGURED),
        None => {}
    }
    match outcome.monitoring {
        Some(monitoring) => set(&mut status.conditions, monitored(monitoring), generation, now),
        None => conditions::remove(&mut status.conditions, MONITORED),
    }
    let configured = conditions::find(&status.conditions, CONFIGURED).cloned();
    let summary =
        summary(controller, outcome, configured.map(|condition| (condition.reason, condition.message)));
    summarise(&mut status.conditions, &summary, generation, now);
    status
}

/// What the status said of the configuration before this pass.
pub fn last_word(controller: &Controller) -> Option<&Condition> {
    conditions::find(&controller.status.as_ref()?.conditions, CONFIGURED)
}

/// True if slurmctld has run before, so that there is something to lose.
pub fn has_run(controller: &Controller) -> bool {
    last_word(controller).is_some_and(|condition| condition.reason != STARTING)
}

/// True if the status says that slurmctld took this configuration.
pub fn confirmed(controller: &Controller, config: &str) -> bool {
    last_word(controller)
        .is_some_and(|condition| condition.reason == APPLIED && condition.message.contains(short(config)))
}

/// Since when slurmctld has been told to read this configuration.
fn told_since(controller: &Controller, config: &str) -> Option<Timestamp> {
    let is_about_it = |condition: &&Condition| {
        [RECONFIGURING, FAILED, UNCONFIRMED].contains(&condition.reason.as_str())
            && condition.message.contains(short(config))
    };
    last_word(controller).filter(is_about_it).map(|condition| condition.last_transition_time.0)
}

/// True if somebody has to look soon what became of a configuration.
pub fn is_unsettled(status: &ControllerStatus) -> bool {
    conditions::find(&status.conditions, CONFIGURED)
        .is_some_and(|condition| [RECONFIGURING, FAILED].contains(&condition.reason.as_str()))
}

/// Conditions of this kind alone that changed and are worth an Event: not those that will change by themselves.
pub fn news<'a>(before: Option<&ControllerStatus>, after: &'a ControllerStatus) -> Vec<&'a Condition> {
    let passing = [STARTING, "Pending", "Checking", RECONFIGURING, "RollingOut"];
    let was = |type_: &str| before.and_then(|status| conditions::find(&status.conditions, type_));
    let is_news = |condition: &&Condition| {
        let same = |old: &Condition| old.reason == condition.reason && old.message == condition.message;
        !was(&condition.type_).is_some_and(same)
    };
    [CONFIGURED, MONITORED]
        .into_iter()
        .filter_map(|type_| conditions::find(&after.conditions, type_))
        .filter(|condition| !passing.contains(&condition.reason.as_str()))
        .filter(is_news)
        .collect()
}

/// The last word in the log of a reconfigure container.
pub fn report_of(log: &str) -> Option<Report> {
    log.lines().rev().find_map(|line| {
        if let Some((_, config)) = line.split_once(", now ").or_else(|| line.split_once(": Reconfigured to "))
        {
            return Some(Report::Took(config.trim().to_owned()));
        }
        let (config, reason) = line.split_once(": Reconfigure to ")?.1.split_once(" failed: ")?;
        Some(Report::Refused { config: config.to_owned(), reason: reason.to_owned() })
    })
}

/// Enough of a configuration's name to know it again.
fn short(config: &str) -> &str {
    config.get(..12).unwrap_or(config)
}

fn configured(
    controller: &Controller,
    observed: &Observed,
    outcome: &Outcome,
    config: &Configured,
    now: Timestamp,
) -> ConditionUpdate {
    let name = short(&config.name);
    let notes: Vec<&str> =
        config.refused_node_sets.iter().chain(&config.warnings).map(String::as_str).collect();
    let verdict = |status: bool, reason, message: String| ConditionUpdate {
        type_: CONFIGURED,
        status: status.into(),
        reason,
        message: [&[message.as_str()], notes.as_slice()].concat().join("; "),
    };
    let is_complete = outcome
        .stateful_set
        .as_deref()
        .is_some_and(|set| matches!(stateful_set_rollout(set), Rollout::Complete(_)));
    let is_started = is_complete || has_run(controller);
    match &config.step {
        Step::Settle(_) => {
            verdict(false, "Pending", "a change takes effect as soon as no more follow".to_owned())
        }
        Step::Check | Step::AwaitCheck(_) => {
            verdict(false, "Checking", "slurmctld tries a change apart before it takes effect".to_owned())
        }
        Step::Refuse(reason) => verdict(
            false,
            "Refused",
            format!("slurmctld refuses the change and keeps configuration {name}: {reason}"),
        ),
        Step::Keep | Step::Write(_) if controller.spec.inplace_reconfigure && is_started => {
            in_place(controller, observed, config, now, verdict)
        }
        Step::Keep | Step::Write(_) if is_complete => {
            verdict(true, APPLIED, format!("slurmctld runs with configuration {name}"))
        }
        Step::Keep | Step::Write(_) => {
            let reason = if is_started { "RollingOut" } else { STARTING };
            verdict(false, reason, format!("slurmctld is being started with configuration {name}"))
        }
    }
}

/// What became of a configuration that slurmctld was told to read.
fn in_place(
    controller: &Controller,
    observed: &Observed,
    config: &Configured,
    now: Timestamp,
    verdict: impl Fn(bool, &'static str, String) -> ConditionUpdate,
) -> ConditionUpdate {
    let name = short(&config.name);
    let applied = || verdict(true, APPLIED, format!("slurmctld runs with configuration {name}"));
    if confirmed(controller, &config.name) {
        return applied();
    }
    match &observed.report {
        Some(Report::Took(took)) if *took == config.name => return applied(),
        Some(Report::Refused { config: refused, reason }) if *refused == config.name => {
            let message =
                format!("slurmctld refused configuration {name} and keeps the one before: {reason}");
            return verdict(false, FAILED, message);
        }
        _ => {}
    }
    let since = told_since(controller, &config.name).unwrap_or(now);
    if now.duration_since(since) > PATIENCE {
        let message =
            format!("no reconfigure container has confirmed that slurmctld runs with configuration {name}");
        verdict(false, UNCONFIRMED, message)
    } else {
        verdict(false, RECONFIGURING, format!("slurmctld is told to read configuration {name}"))
    }
}

fn monitored(monitoring: Monitoring) -> ConditionUpdate {
    let (holds, reason, message) = match monitoring {
        Monitoring::Told => (true, APPLIED, "Prometheus is told to read the metrics"),
        Monitoring::NotInstalled => (
            false,
            "ServiceMonitorUnavailable",
            "metrics.serviceMonitor is enabled, but ServiceMonitors are not installed in this cluster",
        ),
        Monitoring::Failed => (false, "ServiceMonitorFailed", "the ServiceMonitor could not be made"),
    };
    ConditionUpdate { type_: MONITORED, status: holds.into(), reason, message: message.to_owned() }
}

fn summary(controller: &Controller, outcome: &Outcome, configured: Option<(String, String)>) -> Summary {
    if let Err(error) = &outcome.result {
        return Summary::Degraded(error.category(), error.to_string());
    }
    if controller.spec.external {
        return Summary::Ready("slurmctld is external".to_owned());
    }
    let (reason, message) = configured.unwrap_or_default();
    match reason.as_str() {
        "Refused" => return Summary::Degraded("ConfigRefused", message),
        FAILED => return Summary::Degraded(FAILED, message),
        "Pending" | "Checking" => return Summary::Progressing("Reconfiguring", message),
        _ => {}
    }
    if let Some(config) = outcome.config.as_ref().filter(|config| !config.refused_node_sets.is_empty()) {
        return Summary::Degraded("NodeSetRefused", config.refused_node_sets.join("; "));
    }
    if let Some(ignored) = outcome.ignored {
        return Summary::Degraded("PersistenceUnchanged", ignored.to_owned());
    }
    match outcome.stateful_set.as_deref().map(stateful_set_rollout) {
        Some(Rollout::Complete(_)) if reason == RECONFIGURING => Summary::Progressing(RECONFIGURING, message),
        Some(Rollout::Complete(pods)) => Summary::Ready(format!("slurmctld: {pods}")),
        Some(Rollout::Underway(progress)) => Summary::Progressing("RollingOut", progress),
        None => Summary::Progressing("Replacing", "the old StatefulSet is being deleted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{controller, observed, second, stateful_set, told};
    use rstest::rstest;
    use serde_json::json;
    use slinky_api::conditions::READY;
    use std::time::Duration;

    /// The name of a configuration, and what messages show of it.
    const CONFIG: &str = "0123456789abcdef";
    const SHOWN: &str = "0123456789ab";

    fn in_place_controller() -> Controller {
        controller(&json!({ "inplaceReconfigure": true }))
    }

    /// What a pass comes to in which everything went well.
    fn outcome(step: Step, is_ready: bool) -> Outcome {
        Outcome {
            stateful_set: Some(stateful_set(&json!({}), is_ready)),
            config: Some(Configured {
                step,
                name: CONFIG.to_owned(),
                refused_node_sets: vec![],
                warnings: vec![],
            }),
            ignored: None,
            monitoring: None,
            result: Ok(()),
        }
    }

    fn took(config: &str) -> Observed {
        Observed { report: Some(Report::Took(config.to_owned())), ..observed() }
    }

    fn refused(config: &str) -> Observed {
        let report = Report::Refused { config: config.to_owned(), reason: "no such plugin".to_owned() };
        Observed { report: Some(report), ..observed() }
    }

    fn status_at(
        controller: &Controller,
        observed: &Observed,
        outcome: &Outcome,
        now: i64,
    ) -> ControllerStatus {
        status(controller, observed, outcome, second(now))
    }

    fn reason(status: &ControllerStatus, type_: &str) -> Option<String> {
        conditions::find(&status.conditions, type_).map(|condition| condition.reason.clone())
    }

    fn message(status: &ControllerStatus, type_: &str) -> String {
        conditions::find(&status.conditions, type_)
            .map(|condition| condition.message.clone())
            .unwrap_or_default()
    }

    #[rstest]
    #[case::nothing("", None)]
    #[case::something_else("Mon: Hello\n", None)]
    #[case::started("Mon: Watching /etc/slurm, now a1\n", Some(Report::Took("a1".to_owned())))]
    #[case::changed("Mon: Watching /etc/slurm, now a1\nMon: Reconfigured to b2\n", Some(Report::Took("b2".to_owned())))]
    #[case::refused(
        "Mon: Reconfigured to b2\nMon: Reconfigure to c3 failed: slurm_reconfigure error: no; way\n",
        Some(Report::Refused { config: "c3".to_owned(), reason: "slurm_reconfigure error: no; way".to_owned() })
    )]
    #[case::taken_after_all("Mon: Reconfigure to c3 failed: no\nMon: Reconfigured to c3\n", Some(Report::Took("c3".to_owned())))]
    #[case::noise_behind("Mon: Reconfigured to b2\nslurmctld said: hm\n", Some(Report::Took("b2".to_owned())))]
    fn the_last_word_of_a_log_counts(#[case] log: &str, #[case] report: Option<Report>) {
        assert_eq!(report_of(log), report);
    }

    #[rstest]
    #[case::this_one("Applied", CONFIG, true)]
    #[case::another("Applied", "fedcba9876543210", false)]
    #[case::not_yet("Reconfiguring", CONFIG, false)]
    fn only_a_configuration_that_slurmctld_took_is_confirmed(
        #[case] reason: &str,
        #[case] config: &str,
        #[case] expected: bool,
    ) {
        let message = format!("slurmctld runs with configuration {SHOWN}; NodeSet a is odd");
        let controller = told(in_place_controller(), reason, &message, second(0));
        assert_eq!(confirmed(&controller, config), expected);
        assert!(!confirmed(&in_place_controller(), config));
    }

    #[rstest]
    #[case::waiting(Step::Settle(Duration::from_secs(1)), true, "Pending", "Reconfiguring")]
    #[case::to_be_checked(Step::Check, true, "Checking", "Reconfiguring")]
    #[case::being_checked(Step::AwaitCheck(Duration::from_secs(1)), true, "Checking", "Reconfiguring")]
    #[case::refused(Step::Refuse("fatal: no".to_owned()), true, "Refused", "ConfigRefused")]
    #[case::in_force(Step::Keep, true, "Applied", "AsExpected")]
    #[case::first_start(Step::Write(None), false, "Starting", "RollingOut")]
    fn each_step_shows(
        #[case] step: Step,
        #[case] is_ready: bool,
        #[case] configured: &str,
        #[case] ready: &str,
    ) {
        let status = status_at(&controller(&json!({})), &observed(), &outcome(step, is_ready), 0);
        assert_eq!(reason(&status, CONFIGURED).as_deref(), Some(configured));
        assert_eq!(reason(&status, READY).as_deref(), Some(ready));
        let is_applied = configured == "Applied";
        assert_eq!(conditions::is_true(&status.conditions, CONFIGURED), is_applied);
        assert_eq!(conditions::is_true(&status.conditions, READY), is_applied);
    }

    #[test]
    fn a_refusal_says_what_goes_on_and_why() {
        let refusal = outcome(Step::Refuse("fatal: no".to_owned()), true);
        let status = status_at(&controller(&json!({})), &observed(), &refusal, 0);
        let expected = format!("slurmctld refuses the change and keeps configuration {SHOWN}: fatal: no");
        assert_eq!(message(&status, CONFIGURED), expected);
        assert_eq!(message(&status, READY), expected);
    }

    #[test]
    fn a_restart_after_the_first_start_is_none() {
        let before = told(controller(&json!({})), "Applied", SHOWN, second(0));
        let status = status_at(&before, &observed(), &outcome(Step::Keep, false), 9);
        assert_eq!(reason(&status, CONFIGURED).as_deref(), Some("RollingOut"));
        assert!(has_run(&Controller { status: Some(status), ..before }));
        let started = told(controller(&json!({})), STARTING, SHOWN, second(0));
        assert!(!has_run(&started) && !has_run(&controller(&json!({}))));
    }

    #[rstest]
    #[case::taken(took(CONFIG), "Applied", "AsExpected")]
    #[case::another_taken(took("older"), "Reconfiguring", "Reconfiguring")]
    #[case::no_word(observed(), "Reconfiguring", "Reconfiguring")]
    #[case::refused(refused(CONFIG), "ReconfigureFailed", "ReconfigureFailed")]
    #[case::another_refused(refused("older"), "Reconfiguring", "Reconfiguring")]
    fn what_is_read_in_place_is_applied_when_slurmctld_says_so(
        #[case] observed: Observed,
        #[case] configured: &str,
        #[case] ready: &str,
    ) {
        let status = status_at(&in_place_controller(), &observed, &outcome(Step::Keep, true), 0);
        assert_eq!(reason(&status, CONFIGURED).as_deref(), Some(configured));
        assert_eq!(reason(&status, READY).as_deref(), Some(ready));
        assert_eq!(is_unsettled(&status), configured != "Applied");
    }

    #[test]
    fn before_the_first_start_nobody_is_told_anything_in_place() {
        let status = status_at(&in_place_controller(), &observed(), &outcome(Step::Write(None), false), 0);
        assert_eq!(reason(&status, CONFIGURED).as_deref(), Some("Starting"));
        assert!(!is_unsettled(&status));
    }

    #[test]
    fn what_was_confirmed_stays_so_without_another_look() {
        let before = told(in_place_controller(), "Applied", SHOWN, second(0));
        let status = status_at(&before, &observed(), &outcome(Step::Keep, true), 9);
        assert_eq!(reason(&status, CONFIGURED).as_deref(), Some("Applied"));
    }

    /// What the status says of a configuration that nobody confirms, when it was told `before` at second 0.
    fn unconfirmed(before: &str, message: &str, now: i64) -> ControllerStatus {
        let before = told(in_place_controller(), before, message, second(0));
        status_at(&before, &observed(), &outcome(Step::Keep, true), now)
    }

    #[rstest]
    #[case::patient("Reconfiguring", SHOWN, 180, "Reconfiguring")]
    #[case::long_enough("Reconfiguring", SHOWN, 181, "Unconfirmed")]
    #[case::it_stays_so("Unconfirmed", SHOWN, 9999, "Unconfirmed")]
    #[case::a_change_after_silence("Unconfirmed", "another", 9999, "Reconfiguring")]
    #[case::a_change_after_a_refusal("ReconfigureFailed", "another", 9999, "Reconfiguring")]
    #[case::a_change_that_was_refused_before("Refused", SHOWN, 9999, "Reconfiguring")]
    #[case::a_change("Applied", "another", 9999, "Reconfiguring")]
    fn each_configuration_is_given_its_time(
        #[case] before: &str,
        #[case] message: &str,
        #[case] now: i64,
        #[case] expected: &str,
    ) {
        let status = unconfirmed(before, message, now);
        assert_eq!(reason(&status, CONFIGURED).as_deref(), Some(expected));
    }

    #[test]
    fn the_time_counts_from_the_moment_of_the_change() {
        let changed = unconfirmed("Unconfirmed", "another", 9999);
        let later = Controller { status: Some(changed), ..in_place_controller() };
        let status = |now| status_at(&later, &observed(), &outcome(Step::Keep, true), now);
        assert_eq!(reason(&status(9999 + 180), CONFIGURED).as_deref(), Some("Reconfiguring"));
        assert_eq!(reason(&status(9999 + 181), CONFIGURED).as_deref(), Some("Unconfirmed"));
    }

    #[test]
    fn without_an_outcome_what_is_known_of_the_configuration_stays() {
        let before = told(controller(&json!({})), "Applied", SHOWN, second(0));
        let failed = Outcome { config: None, ..outcome(Step::Keep, true) };
        let status = status_at(&before, &observed(), &failed, 9);
        assert_eq!(conditions::find(&status.conditions, CONFIGURED), last_word(&before));
    }

    #[test]
    fn a_cluster_elsewhere_is_ready_and_has_no_configuration_of_ours() {
        let change = json!({ "external": true, "externalConfig": { "host": "h", "port": 1 } });
        let before = told(controller(&change), "Applied", SHOWN, second(0));
        let elsewhere = Outcome { stateful_set: None, ..outcome(Step::Write(None), false) };
        let status = status_at(&before, &observed(), &elsewhere, 9);
        assert_eq!(
            (reason(&status, CONFIGURED), reason(&status, READY).as_deref()),
            (None, Some("AsExpected"))
        );
    }

    #[test]
    fn a_bad_node_set_is_told_although_slurmctld_runs() {
        let mut outcome = outcome(Step::Keep, true);
        let config = outcome.config.as_mut().unwrap();
        config.refused_node_sets.push("NodeSet a: no".to_owned());
        config.warnings.push("line 3: hm".to_owned());
        let status = status_at(&controller(&json!({})), &observed(), &outcome, 0);
        assert_eq!(reason(&status, READY).as_deref(), Some("NodeSetRefused"));
        assert_eq!(message(&status, READY), "NodeSet a: no");
        let expected = format!("slurmctld runs with configuration {SHOWN}; NodeSet a: no; line 3: hm");
        assert_eq!(message(&status, CONFIGURED), expected);
    }

    #[rstest]
    #[case::ignored(Outcome { ignored: Some("kept"), ..outcome(Step::Keep, true) }, "PersistenceUnchanged")]
    #[case::not_ready(outcome(Step::Keep, false), "RollingOut")]
    #[case::on_its_way_out(Outcome { stateful_set: None, ..outcome(Step::Keep, true) }, "Replacing")]
    fn what_keeps_a_controller_from_being_ready_is_told(#[case] outcome: Outcome, #[case] ready: &str) {
        let status = status_at(&controller(&json!({})), &observed(), &outcome, 0);
        assert_eq!(reason(&status, READY).as_deref(), Some(ready));
    }

    #[rstest]
    #[case::not_asked_for(None, None)]
    #[case::told(Some(Monitoring::Told), Some("Applied"))]
    #[case::not_installed(Some(Monitoring::NotInstalled), Some("ServiceMonitorUnavailable"))]
    #[case::failed(Some(Monitoring::Failed), Some("ServiceMonitorFailed"))]
    fn monitoring_is_a_matter_of_its_own(
        #[case] monitoring: Option<Monitoring>,
        #[case] expected: Option<&str>,
    ) {
        let mut before = controller(&json!({}));
        let told = Outcome { monitoring: Some(Monitoring::Told), ..outcome(Step::Keep, true) };
        before.status = Some(status_at(&before, &observed(), &told, 0));
        let status = status_at(&before, &observed(), &Outcome { monitoring, ..outcome(Step::Keep, true) }, 9);
        assert_eq!(reason(&status, MONITORED).as_deref(), expected);
        let is_told = monitoring == Some(Monitoring::Told);
        assert_eq!(conditions::is_true(&status.conditions, MONITORED), is_told);
        assert!(conditions::is_true(&status.conditions, READY));
    }

    #[rstest]
    #[case::first(None, outcome(Step::Keep, true), &["Applied"])]
    #[case::again(Some("Applied"), outcome(Step::Keep, true), &[])]
    #[case::will_change_by_itself(Some("Applied"), outcome(Step::Check, true), &[])]
    #[case::being_started(None, outcome(Step::Write(None), false), &[])]
    #[case::refused(Some("Checking"), outcome(Step::Refuse("no".to_owned()), true), &["Refused"])]
    #[case::metrics(Some("Applied"), Outcome { monitoring: Some(Monitoring::NotInstalled), ..outcome(Step::Keep, true) },
        &["ServiceMonitorUnavailable"])]
    fn only_news_that_stay_are_told(
        #[case] said: Option<&str>,
        #[case] outcome: Outcome,
        #[case] expected: &[&str],
    ) {
        let mut before = controller(&json!({}));
        if let Some(reason) = said {
            let message = format!("slurmctld runs with configuration {SHOWN}");
            before = told(before, reason, &message, second(0));
        }
        let after = status_at(&before, &observed(), &outcome, 9);
        let told = news(before.status.as_ref(), &after);
        assert_eq!(told.iter().map(|condition| condition.reason.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn nothing_changes_when_nothing_does() {
        let mut before = controller(&json!({}));
        for outcome in [outcome(Step::Keep, true), outcome(Step::Settle(Duration::from_secs(1)), true)] {
            before.status = Some(status_at(&before, &observed(), &outcome, 0));
            let after = status_at(&before, &observed(), &outcome, 99);
            assert_eq!(Some(after), before.status);
        }
    }
}
