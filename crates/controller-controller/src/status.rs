//! Computes the status of a Controller from the plan and its outcome.

use crate::execute::{Monitoring, Outcome};
use crate::observe::{CrashLoop, Observed};
use crate::plan::{
    ActiveDaemon, ConfigPlan, Confirmation, Decision, Plan, STARTING, active_daemon, has_run, short_hash,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use operator_runtime::Classify;
use pod_builder::{Rollout, stateful_set_rollout};
use slinky_api::conditions::{
    self, ACTIVE_REPORTED, CONFIGURED, ConditionStatus, ConditionUpdate, DEGRADED, MONITORED, Summary, set,
    summarise,
};
use slinky_api::names::SLURMCTLD_PORT;
use slinky_api::v1beta1::{Controller, ControllerStatus};
use std::iter;

/// Reason of [`CONFIGURED`] when slurmctld runs with the configuration.
const APPLIED: &str = "Applied";
/// Reason of [`CONFIGURED`] while slurmctld is expected to read the configuration.
const RECONFIGURING: &str = "Reconfiguring";
/// Reason of [`CONFIGURED`] when slurmctld refused to read the configuration.
const FAILED: &str = "ReconfigureFailed";
/// Reason of [`CONFIGURED`] when no reconfigure container confirmed the configuration in time.
const UNCONFIRMED: &str = "Unconfirmed";
/// Reason of [`CONFIGURED`] while a change waits for further changes.
const PENDING: &str = "Pending";
/// Reason of [`CONFIGURED`] while a check pod tries a change.
const CHECKING: &str = "Checking";
/// Reason of [`CONFIGURED`] when slurmctld refuses a change in the check pod.
const REFUSED: &str = "Refused";
/// Reason of [`CONFIGURED`] while slurmctld restarts with the configuration.
const ROLLING_OUT: &str = "RollingOut";
/// Reason of [`DEGRADED`] when a container of a slurmctld pod ends again and again.
const CRASH_LOOP: &str = "CrashLoopBackOff";

/// Reason of [`ACTIVE_REPORTED`] while no daemon reports to be active.
const NONE_ACTIVE: &str = "NoneActive";

/// The status after a reconcile.
pub fn status(observed: &Observed, plan: &Plan, outcome: &Outcome, now: Timestamp) -> ControllerStatus {
    let controller = observed.controller.as_ref();
    let mut status = controller.status.clone().unwrap_or_default();
    let generation = controller.metadata.generation;
    let config = plan.config.as_ref().filter(|_| !controller.spec.external);
    let configured = config.map(|config| configured_condition(controller, config, outcome));
    match &configured {
        Some(condition) => set(&mut status.conditions, condition.clone(), generation, now),
        None if controller.spec.external => conditions::remove(&mut status.conditions, CONFIGURED),
        // The configuration in force stays in force; the summary says why it is not changed.
        None => {}
    }
    if let Some(config) = config {
        status.refused_node_sets.clone_from(&config.refused_node_sets);
    }
    match active_condition(observed) {
        Some(condition) => set(&mut status.conditions, condition, generation, now),
        None => conditions::remove(&mut status.conditions, ACTIVE_REPORTED),
    }
    match outcome.monitoring {
        Some(monitoring) => set(&mut status.conditions, monitored_condition(monitoring), generation, now),
        None => conditions::remove(&mut status.conditions, MONITORED),
    }
    let summary = summary(observed, plan, outcome, configured);
    summarise(&mut status.conditions, &summary, generation, now);
    status
}

/// Changed conditions that are worth an Event. Transitional states are not, and the conditions that every kind has are
/// covered by the events of failed reconciles, crash loops aside.
pub fn transitions<'a>(before: Option<&ControllerStatus>, after: &'a ControllerStatus) -> Vec<&'a Condition> {
    let transitional = [STARTING, PENDING, CHECKING, RECONFIGURING, ROLLING_OUT, NONE_ACTIVE];
    let old = |type_: &str| before.and_then(|status| conditions::find(&status.conditions, type_));
    let is_changed = |condition: &&Condition| {
        let is_same = |old: &Condition| old.reason == condition.reason && old.message == condition.message;
        !old(&condition.type_).is_some_and(is_same)
    };
    [CONFIGURED, ACTIVE_REPORTED, MONITORED, DEGRADED]
        .into_iter()
        .filter_map(|type_| conditions::find(&after.conditions, type_))
        .filter(|condition| condition.type_ != DEGRADED || condition.reason == CRASH_LOOP)
        .filter(|condition| !transitional.contains(&condition.reason.as_str()))
        .filter(is_changed)
        .collect()
}

fn configured_condition(controller: &Controller, config: &ConfigPlan, outcome: &Outcome) -> ConditionUpdate {
    let hash = short_hash(&config.hash);
    let (holds, reason, message) = match &config.decision {
        Decision::Settle(_) => {
            (false, PENDING, "a configuration change takes effect when no further changes follow".to_owned())
        }
        Decision::Check | Decision::AwaitCheck(_) => {
            (false, CHECKING, "a check pod tries the changed configuration before it takes effect".to_owned())
        }
        Decision::Refuse(reason) => {
            let candidate = short_hash(&config.candidate);
            let message = format!(
                "slurmctld refuses configuration {candidate} and keeps configuration {hash}: {reason}"
            );
            (false, REFUSED, message)
        }
        Decision::Keep | Decision::Write(_) => in_force(controller, config, outcome),
    };
    let refused = config.refused_node_sets.iter().map(ToString::to_string);
    let notes = config
        .unchecked
        .iter()
        .chain(&config.ignored_name)
        .cloned()
        .chain(refused)
        .chain(config.warnings.iter().cloned());
    let message = iter::once(message).chain(notes).collect::<Vec<_>>().join("; ");
    ConditionUpdate { type_: CONFIGURED, status: holds.into(), reason, message }
}

/// Whether slurmctld runs with the configuration in force.
fn in_force(controller: &Controller, config: &ConfigPlan, outcome: &Outcome) -> (bool, &'static str, String) {
    let hash = short_hash(&config.hash);
    let applied = || (true, APPLIED, format!("slurmctld runs with configuration {hash}"));
    let rollout = outcome.stateful_set.as_deref().map(stateful_set_rollout);
    let is_complete = matches!(rollout, Some(Rollout::Complete(_)));
    match &config.confirmation {
        Some(Confirmation::Confirmed) => applied(),
        Some(Confirmation::Refused(reason)) => {
            let message =
                format!("slurmctld refused configuration {hash} and keeps the previous one: {reason}");
            (false, FAILED, message)
        }
        Some(Confirmation::Awaited) => {
            let message = format!("waiting for slurmctld to confirm that it runs with configuration {hash}");
            (false, RECONFIGURING, message)
        }
        Some(Confirmation::TimedOut) => {
            let message = format!(
                "no reconfigure container has confirmed that slurmctld runs with configuration {hash}"
            );
            (false, UNCONFIRMED, message)
        }
        None if is_complete && !controller.spec.inplace_reconfigure => applied(),
        None => {
            let reason = if has_run(controller) { ROLLING_OUT } else { STARTING };
            (false, reason, format!("slurmctld is starting with configuration {hash}"))
        }
    }
}

/// Where several daemons run: how it is known which of them is active.
fn active_condition(observed: &Observed) -> Option<ConditionUpdate> {
    if observed.controller.spec.external {
        return None;
    }
    let (status, reason, message) = match active_daemon(observed) {
        ActiveDaemon::Single(_) => return None,
        ActiveDaemon::Reported(pod) => {
            (ConditionStatus::True, "Reported", format!("{pod} reports to be active"))
        }
        ActiveDaemon::Assumed { pod, silent } => {
            let message = format!(
                "the operator gets no answer on port {SLURMCTLD_PORT} from {}, which a NetworkPolicy may forbid: the \
                 Service selects {pod}, the first pod that is ready, instead of the one that reports to be active",
                silent.join(", ")
            );
            (ConditionStatus::False, "NotAnswering", message)
        }
        ActiveDaemon::Unknown(pod) => {
            let message = format!("no slurmctld reports to be active; the Service keeps {pod}");
            (ConditionStatus::Unknown, NONE_ACTIVE, message)
        }
    };
    Some(ConditionUpdate { type_: ACTIVE_REPORTED, status, reason, message })
}

fn monitored_condition(monitoring: Monitoring) -> ConditionUpdate {
    let (holds, reason, message) = match monitoring {
        Monitoring::Applied => (true, APPLIED, "the ServiceMonitor for slurmctld's metrics is applied"),
        Monitoring::NotInstalled => (
            false,
            "ServiceMonitorUnavailable",
            "metrics.serviceMonitor is enabled, but ServiceMonitors are not installed in this cluster",
        ),
        Monitoring::Failed => (false, "ServiceMonitorFailed", "applying the ServiceMonitor failed"),
    };
    ConditionUpdate { type_: MONITORED, status: holds.into(), reason, message: message.to_owned() }
}

/// What ends again and again, and its last words.
fn describe_crash(CrashLoop { pod, container, last_line }: &CrashLoop) -> String {
    let last_line = last_line.as_deref().unwrap_or("its log cannot be read");
    format!("container {container} of pod {pod} ends again and again: {last_line}")
}

fn summary(
    observed: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    configured: Option<ConditionUpdate>,
) -> Summary {
    if let Err(error) = &outcome.result {
        return Summary::Degraded(error.category(), error.to_string());
    }
    if observed.controller.spec.external {
        return Summary::Ready("slurmctld is external".to_owned());
    }
    if let Some(crash_loop) = &observed.crash_loop {
        return Summary::Degraded(CRASH_LOOP, describe_crash(crash_loop));
    }
    let (reason, message) = configured.map(|condition| (condition.reason, condition.message)).unzip();
    let message = message.unwrap_or_default();
    match reason {
        Some(REFUSED) => return Summary::Degraded("ConfigRefused", message),
        Some(FAILED) => return Summary::Degraded(FAILED, message),
        Some(PENDING | CHECKING) => return Summary::Progressing(RECONFIGURING, message),
        _ => {}
    }
    if let Some(ignored) = plan.config.as_ref().and_then(|config| config.ignored_name.as_ref()) {
        return Summary::Degraded("ClusterNameUnchanged", ignored.clone());
    }
    if let Some(config) = plan.config.as_ref().filter(|config| !config.refused_node_sets.is_empty()) {
        let refused: Vec<_> = config.refused_node_sets.iter().map(ToString::to_string).collect();
        return Summary::Degraded("NodeSetRefused", refused.join("; "));
    }
    if let Some(problem) = plan.persistence {
        return Summary::Degraded(problem.reason, problem.message.to_owned());
    }
    match outcome.stateful_set.as_deref().map(stateful_set_rollout) {
        Some(Rollout::Complete(_)) if reason == Some(RECONFIGURING) => {
            Summary::Progressing(RECONFIGURING, message)
        }
        Some(Rollout::Complete(pods)) => Summary::Ready(format!("slurmctld: {pods}")),
        Some(Rollout::Underway(progress)) => Summary::Progressing(ROLLING_OUT, progress),
        None => Summary::Progressing("Replacing", "the old StatefulSet is being deleted".to_owned()),
    }
}

#[cfg(test)]
mod tests;
