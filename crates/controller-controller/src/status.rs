//! What a Controller's status says, and what an earlier one said.

use crate::execute::{Configured, Outcome};
use crate::observe::{Observed, Report};
use crate::rollout::Step;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use operator_runtime::Classify;
use pod_builder::{Rollout, stateful_set_rollout};
use slinky_api::conditions::{
    self, CONFIGURED, ConditionStatus, MONITORED, Summary, Verdict, set, summarise,
};
use slinky_api::v1beta1::{Controller, ControllerStatus};

/// Reason of [`CONFIGURED`] when slurmctld runs with the configuration.
const APPLIED: &str = "Applied";
/// Reason of [`CONFIGURED`] while slurmctld is told of the configuration.
const RECONFIGURING: &str = "Reconfiguring";
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
            set(&mut status.conditions, verdict, generation, now);
        }
        // What is in force stays in force; why it is not changed is for the summary to say.
        None if controller.spec.external => conditions::remove(&mut status.conditions, CONFIGURED),
        None => {}
    }
    match outcome.monitored {
        Some(true) => set(&mut status.conditions, monitored(), generation, now),
        Some(false) => set(&mut status.conditions, not_monitored(), generation, now),
        None => conditions::remove(&mut status.conditions, MONITORED),
    }
    let configured = conditions::find(&status.conditions, CONFIGURED).cloned();
    let summary =
        summary(controller, outcome, configured.map(|condition| (condition.reason, condition.message)));
    summarise(&mut status.conditions, &summary, generation, now);
    status
}

/// True if the status says that slurmctld took this configuration.
pub fn confirmed(controller: &Controller, config: &str) -> bool {
    let conditions = controller.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions::find(conditions, CONFIGURED)
        .is_some_and(|condition| condition.reason == APPLIED && condition.message.contains(short(config)))
}

/// True if somebody has to look soon what became of a configuration.
pub fn is_unsettled(status: &ControllerStatus) -> bool {
    conditions::find(&status.conditions, CONFIGURED)
        .is_some_and(|condition| [RECONFIGURING, "ReconfigureFailed"].contains(&condition.reason.as_str()))
}

/// Conditions of this kind alone that changed and are worth an Event: not those that will change by themselves.
pub fn news<'a>(before: Option<&ControllerStatus>, after: &'a ControllerStatus) -> Vec<&'a Condition> {
    let passing = ["Pending", "Checking", RECONFIGURING, "RollingOut"];
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
) -> Verdict {
    let name = short(&config.name);
    let notes: Vec<&str> =
        config.refused_node_sets.iter().chain(&config.warnings).map(String::as_str).collect();
    let verdict = |status: bool, reason, message: String| Verdict {
        type_: CONFIGURED,
        status: status.into(),
        reason,
        message: [&[message.as_str()], notes.as_slice()].concat().join("; "),
    };
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
        Step::Keep | Step::Write(_) if controller.spec.inplace_reconfigure => {
            in_place(controller, observed, config, now, verdict)
        }
        Step::Keep | Step::Write(_) => match outcome.stateful_set.as_deref().map(stateful_set_rollout) {
            Some(Rollout::Complete) => {
                verdict(true, APPLIED, format!("slurmctld runs with configuration {name}"))
            }
            _ => {
                verdict(false, "RollingOut", format!("slurmctld is being started with configuration {name}"))
            }
        },
    }
}

/// What became of a configuration that slurmctld was told to read.
fn in_place(
    controller: &Controller,
    observed: &Observed,
    config: &Configured,
    now: Timestamp,
    verdict: impl Fn(bool, &'static str, String) -> Verdict,
) -> Verdict {
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
            return verdict(false, "ReconfigureFailed", message);
        }
        _ => {}
    }
    let conditions = controller.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let since = conditions::find(conditions, CONFIGURED)
        .filter(|condition| condition.status != ConditionStatus::True.as_str())
        .map_or(now, |condition| condition.last_transition_time.0);
    if now.duration_since(since) > PATIENCE {
        let message =
            format!("no reconfigure container has confirmed that slurmctld runs with configuration {name}");
        verdict(false, UNCONFIRMED, message)
    } else {
        verdict(false, RECONFIGURING, format!("slurmctld is told to read configuration {name}"))
    }
}

fn monitored() -> Verdict {
    Verdict { type_: MONITORED, status: ConditionStatus::True, reason: APPLIED, message: String::new() }
}

fn not_monitored() -> Verdict {
    Verdict {
        type_: MONITORED,
        status: ConditionStatus::False,
        reason: "ServiceMonitorUnavailable",
        message: "metrics.serviceMonitor is enabled, but ServiceMonitors are not installed in this cluster"
            .to_owned(),
    }
}

fn summary(controller: &Controller, outcome: &Outcome, configured: Option<(String, String)>) -> Summary {
    if let Err(error) = &outcome.result {
        return Summary::Degraded(error.category(), error.to_string());
    }
    if controller.spec.external {
        return Summary::Ready;
    }
    let (reason, message) = configured.unwrap_or_default();
    match reason.as_str() {
        "Refused" => return Summary::Degraded("ConfigRefused", message),
        "ReconfigureFailed" => return Summary::Degraded("ReconfigureFailed", message),
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
        Some(Rollout::Complete) if reason == RECONFIGURING => Summary::Progressing(RECONFIGURING, message),
        Some(Rollout::Complete) => Summary::Ready,
        Some(Rollout::Underway(progress)) => Summary::Progressing("RollingOut", progress),
        None => Summary::Progressing("Replacing", "the old StatefulSet is being deleted".to_owned()),
    }
}
