//! Plans the configuration: its content, when it takes effect, and whether slurmctld confirmed it.

use super::pods::{config_annotations, is_ready};
use super::rollout::{Decision, Situation, decide};
use super::{ControllerObstacle, Obstacle, Plan, Step, owned};
use crate::build::{
    Files, Reconfiguration, Rendered, Sources, build_candidate, build_check, build_config, render,
};
use crate::observe::{Observed, Report};
use jiff::{SignedDuration, Timestamp};
use operator_runtime::MissingReference;
use pod_builder::{Rollout, hash_bytes, hash_files, stateful_set_rollout};
use serde_json::Value;
use slinky_api::conditions::{self, CONFIGURED};
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::Controller;
use std::sync::Arc;

/// Reason of `Configured` until slurmctld runs for the first time.
pub const STARTING: &str = "Starting";
/// After this long without a report of a reconfigure container the operator stops waiting for one.
const CONFIRMATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(3);

/// The decisions about the configuration.
#[derive(Debug)]
pub struct ConfigPlan {
    /// What is done with the rendered configuration.
    pub decision: Decision,
    /// Hash of the configuration that is in force after this reconcile.
    pub hash: String,
    /// Whether a running slurmctld has read it; `None` if it is not read in place, is not in force yet, or slurmctld has
    /// not started yet.
    pub confirmation: Option<Confirmation>,
    /// NodeSets that are not in the configuration as their spec says, and why.
    pub refused_node_sets: Vec<String>,
    /// Findings in the configuration that Slurm accepts.
    pub warnings: Vec<String>,
}

/// Whether slurmctld has read a configuration in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// slurmctld runs with it.
    Confirmed,
    /// slurmctld refused it for this reason and keeps the previous one.
    Refused(String),
    /// No report about it yet.
    Awaited,
    /// No report about it within the timeout.
    TimedOut,
}

/// True if slurmctld has run before, so that a change has to be checked.
pub fn has_run(controller: &Controller) -> bool {
    let conditions = controller.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions::find(conditions, CONFIGURED).is_some_and(|condition| condition.reason != STARTING)
}

/// Renders the configuration from everything that it refers to.
pub fn render_config(observed: &Observed) -> Result<Rendered, Obstacle> {
    let spec = &observed.controller.spec;
    if let Some(reference) = &spec.accounting_ref
        && observed.accounting.is_none()
    {
        // slurmctld would run on without accounting.
        return Err(MissingReference::Accounting(reference.name.clone()).into());
    }
    let config_maps = observed.config_maps.as_ref().map_err(Arc::clone)?;
    for name in spec.config_map_names().into_iter().filter(|_| !spec.external) {
        check_object_name(name).map_err(|problem| ControllerObstacle::Misnamed(name.to_owned(), problem))?;
        if !config_maps.contains_key(name) {
            return Err(MissingReference::ConfigMap(name.to_owned()).into());
        }
    }
    let sources = Sources {
        accounting: observed.accounting.as_deref(),
        node_sets: &observed.node_sets,
        config_maps,
        in_force: observed.files(),
    };
    Ok(render(&observed.controller, &sources).map_err(ControllerObstacle::from)?)
}

/// Plans the configuration of clients of an external cluster: it is written at once.
pub fn plan_external_config(plan: &mut Plan, observed: &Observed, rendered: Rendered, now: Timestamp) {
    let is_in_force = observed.files() == Some(&rendered.files);
    let decision = if is_in_force { Decision::Keep } else { Decision::Write(None) };
    plan_config_map(plan, observed, rendered, decision, now);
}

/// Plans the configuration of daemons with this pod template. Returns the writes to their pods, which follow that of the
/// StatefulSet.
pub fn plan_config(
    plan: &mut Plan,
    observed: &Observed,
    rendered: Rendered,
    template: Option<&Value>,
    now: Timestamp,
) -> Result<Vec<Step>, Obstacle> {
    let controller = &observed.controller;
    let id =
        hash_bytes(format!("{}{}", hash_files(&rendered.files), template.unwrap_or(&Value::Null)).as_bytes());
    let (decision, pending) = decide(&Situation {
        id: &id,
        is_in_force: observed.files() == Some(&rendered.files),
        // A slurmctld that is being restarted has a state to protect, too.
        is_running: observed.files().is_some()
            && (has_run(controller) || observed.pods.iter().any(|pod| is_ready(pod))),
        check: observed.check.as_deref(),
        pending: observed.pending.as_ref(),
        delay: observed.reconfigure_delay,
        now,
    });
    match (&decision, &observed.check, template) {
        (Decision::Keep | Decision::Write(_), ..) => plan.steps.extend(delete_check(observed)),
        // The event of its deletion starts the next reconcile, which creates a new one.
        (Decision::Check, Some(outdated), _) => plan.steps.push(Step::DeleteCheckPod(outdated.clone())),
        (Decision::Check, None, Some(template)) => plan.steps.push(Step::CreateCheck {
            candidate: Box::new(build_candidate(controller, rendered.files.clone())),
            pod: Box::new(build_check(controller, template, &id).map_err(Obstacle::invalid)?),
        }),
        _ => {}
    }
    plan.pending = pending;
    Ok(plan_config_map(plan, observed, rendered, decision, now))
}

/// Deletes the check pod and its ConfigMap.
pub fn delete_check(observed: &Observed) -> Vec<Step> {
    let pod = owned(observed, observed.check.as_ref()).map(Step::DeleteCheckPod);
    let candidate = owned(observed, observed.candidate.as_ref()).map(Step::DeleteCandidate);
    pod.into_iter().chain(candidate).collect()
}

/// Plans the ConfigMap that is in force after this decision. Returns the writes to pods that follow.
fn plan_config_map(
    plan: &mut Plan,
    observed: &Observed,
    rendered: Rendered,
    decision: Decision,
    now: Timestamp,
) -> Vec<Step> {
    let Rendered { files, refused_node_sets, warnings } = rendered;
    let files: Files =
        if decision.is_in_force() { files } else { observed.files().cloned().unwrap_or_default() };
    let hash = observed.config_hash(&files);
    let spec = &observed.controller.spec;
    let is_awaited = spec.inplace_reconfigure && !spec.external && decision.is_in_force();
    let confirmation = is_awaited.then(|| confirmation_of(observed, &hash, now));
    let pod_steps = match &confirmation {
        None | Some(Confirmation::Confirmed) => vec![],
        Some(unconfirmed) => config_annotations(observed, &hash, *unconfirmed == Confirmation::TimedOut, now),
    };
    let confirmation = confirmation.filter(|_| has_started(observed));
    let record = match &confirmation {
        Some(confirmation) => {
            let since = observed.awaited_since(&hash).unwrap_or(now);
            let awaited_since = (*confirmation != Confirmation::Confirmed).then_some(since);
            Some(Reconfiguration { config: hash.clone(), awaited_since })
        }
        // While a change is pending, the record of the configuration in force stays.
        None if spec.inplace_reconfigure && !decision.is_in_force() => observed.reconfiguration(&hash),
        None => None,
    };
    let config_map = build_config(&observed.controller, files, record.as_ref());
    plan.steps.push(Step::ApplyConfig(Box::new(config_map)));
    plan.config = Some(ConfigPlan { decision, hash, confirmation, refused_node_sets, warnings });
    pod_steps
}

/// True if slurmctld runs or has run. Before that no reconfigure container can report.
fn has_started(observed: &Observed) -> bool {
    let rollout = observed.stateful_set.as_deref().map(|set| stateful_set_rollout(set));
    has_run(&observed.controller) || matches!(rollout, Some(Rollout::Complete(_)))
}

/// Whether slurmctld has read the configuration of this hash.
fn confirmation_of(observed: &Observed, hash: &str, now: Timestamp) -> Confirmation {
    if observed.is_confirmed(hash) {
        return Confirmation::Confirmed;
    }
    match &observed.report {
        Some(Report::Applied(applied)) if applied == hash => return Confirmation::Confirmed,
        Some(Report::Refused { config, reason }) if config == hash => {
            return Confirmation::Refused(reason.clone());
        }
        _ => {}
    }
    let since = observed.awaited_since(hash).unwrap_or(now);
    if now.duration_since(since) > CONFIRMATION_TIMEOUT {
        Confirmation::TimedOut
    } else {
        Confirmation::Awaited
    }
}
