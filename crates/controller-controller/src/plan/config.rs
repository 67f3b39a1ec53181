//! Plans the configuration: its content, when it takes effect, and whether slurmctld confirmed it.

use super::pods::{config_annotations, is_ready};
use super::refusals::{refusals_after, retried};
use super::rollout::{Decision, Situation, decide};
use super::{ControllerObstacle, Obstacle, Plan, Step, owned};
use crate::build::{
    Configuration, LARGEST, Reconfiguration, RefusedNodeSets, Rendered, Sources, build_candidate,
    build_check, build_config, render,
};
use crate::observe::{Observed, Report};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use operator_runtime::MissingReference;
use pod_builder::{Rollout, hash_bytes, hash_files, stateful_set_rollout};
use serde_json::Value;
use slinky_api::conditions::{self, CONFIGURED};
use slinky_api::labels::annotations::{ACCEPTED_CONFIG, RECONFIGURATION, UNCHECKED_CONFIG};
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::{Controller, RefusedNodeSet};
use std::collections::BTreeMap;
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
    /// Hash of the configuration that the spec, the NodeSets and the user's files result in.
    pub candidate: String,
    /// Why no check accepted the configuration in force, if it took effect unchecked.
    pub unchecked: Option<String>,
    /// Whether a running slurmctld has read it; `None` if it is not read in place, is not in force yet, or slurmctld has
    /// not started yet.
    pub confirmation: Option<Confirmation>,
    /// NodeSets that are not in the configuration as their spec says, and why.
    pub refused_node_sets: Vec<RefusedNodeSet>,
    /// A change of `clusterName` that has no effect, and why.
    pub ignored_name: Option<String>,
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

/// The desired configuration.
pub struct Desired {
    /// Its files.
    pub configuration: Configuration,
    /// The lines of NodeSets that differ from those in force, by the name of the NodeSet.
    pub changed_node_sets: BTreeMap<String, String>,
    /// Nothing but these lines differs from the configuration in force.
    pub changes_node_sets_only: bool,
    refused_node_sets: Vec<RefusedNodeSet>,
    ignored_name: Option<String>,
    warnings: Vec<String>,
}

/// True if slurmctld runs or has run with the configuration in force: it has a state to protect, also while it restarts.
fn has_state(observed: &Observed) -> bool {
    let is_running = || observed.pods.iter().any(|pod| is_ready(pod));
    observed.files().is_some() && (has_run(&observed.controller) || is_running())
}

/// Renders the configuration from everything that it refers to, and returns the refusals of NodeSets that it takes into
/// account.
pub fn render_config(observed: &Observed) -> Result<(Desired, RefusedNodeSets), Obstacle> {
    let in_force = observed.in_force();
    retried(&observed.refusals, |refusals| {
        let desired = render_without(observed, refusals)?;
        let is_in_force = in_force.as_ref() == Some(&desired.configuration);
        Ok((desired, is_in_force))
    })
}

fn render_without(observed: &Observed, refusals: &RefusedNodeSets) -> Result<Desired, Obstacle> {
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
        has_state: has_state(observed),
        refusals,
    };
    let rendered = render(&observed.controller, &sources).map_err(ControllerObstacle::from)?;
    let Rendered {
        files,
        refused_node_sets,
        changed_node_sets,
        without_changed_node_sets,
        ignored_name,
        warnings,
    } = rendered;
    let user = if spec.external {
        BTreeMap::new()
    } else {
        observed.jwks.as_ref().map_err(Arc::clone)?;
        observed.user_files()
    };
    let unchanged = Configuration::new(without_changed_node_sets, user.clone());
    let configuration = Configuration::new(files, user);
    match configuration.size() {
        size if size > LARGEST => Err(ControllerObstacle::TooLarge(size).into()),
        _ => Ok(Desired {
            configuration,
            changed_node_sets,
            changes_node_sets_only: observed.in_force() == Some(unchanged),
            refused_node_sets,
            ignored_name,
            warnings,
        }),
    }
}

/// Plans the configuration of clients of an external cluster: it is written at once.
pub fn plan_external_config(plan: &mut Plan, observed: &Observed, desired: Desired, now: Timestamp) {
    let is_in_force = observed.files() == Some(&desired.configuration.generated);
    let decision = if is_in_force { Decision::Keep } else { Decision::Write(None) };
    plan_config_map(plan, observed, desired, decision, now);
}

/// Plans the configuration of daemons with this pod template. Returns the writes to their pods, which follow that of the
/// StatefulSet.
pub fn plan_config(
    plan: &mut Plan,
    observed: &Observed,
    desired: Desired,
    template: Option<&Value>,
    now: Timestamp,
) -> Result<Vec<Step>, Obstacle> {
    let controller = &observed.controller;
    let configuration = &desired.configuration;
    let files = hash_files(&configuration.contents());
    let id = hash_bytes(format!("{files}{}", template.unwrap_or(&Value::Null)).as_bytes());
    let (decision, pending) = decide(&Situation {
        id: &id,
        is_in_force: observed.in_force().as_ref() == Some(configuration),
        is_running: has_state(observed),
        is_accepted: is_accepted(controller, &configuration.hash()),
        check: observed.check.as_deref(),
        pending: observed.pending.as_ref(),
        delay: observed.reconfigure_delay,
        now,
    });
    match (&decision, owned(observed, observed.check.as_ref()), template) {
        (Decision::Keep | Decision::Write(_), ..) => plan.steps.extend(delete_check(observed)),
        // The event of its deletion starts the next reconcile, which creates a new one.
        (Decision::Check, Some(outdated), _) => plan.steps.push(Step::DeleteCheckPod(outdated)),
        (Decision::Check, None, Some(template)) => plan.steps.push(Step::CreateCheck {
            candidate: Box::new(build_candidate(controller, configuration)),
            pod: Box::new(build_check(controller, template, &id).map_err(Obstacle::invalid)?),
        }),
        _ => {}
    }
    plan.pending = pending;
    let decision = refusals_after(&mut plan.refusals, &desired, decision);
    Ok(plan_config_map(plan, observed, desired, decision, now))
}

/// True if an annotation of the Controller has the hash of this configuration, in full or as messages show it.
fn is_accepted(controller: &Controller, hash: &str) -> bool {
    let accepted = controller.annotations().get(ACCEPTED_CONFIG).map_or("", String::as_str);
    accepted == hash || accepted == short_hash(hash)
}

/// The part of a configuration's hash that messages show.
pub fn short_hash(config: &str) -> &str {
    config.get(..12).unwrap_or(config)
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
    desired: Desired,
    decision: Decision,
    now: Timestamp,
) -> Vec<Step> {
    let Desired { configuration, refused_node_sets, ignored_name, warnings, .. } = desired;
    let candidate = configuration.hash();
    let configuration =
        if decision.is_in_force() { configuration } else { observed.in_force().unwrap_or_default() };
    let hash = configuration.hash();
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
    let unchecked = match &decision {
        Decision::Write(note) => note.clone(),
        Decision::Keep
        | Decision::Settle(_)
        | Decision::Check
        | Decision::AwaitCheck(_)
        | Decision::Refuse(_) => observed.unchecked(&hash).map(str::to_owned),
    };
    let reconfiguration = record.map(|record| (RECONFIGURATION, record.to_annotation()));
    let unchecked_record = unchecked.as_ref().map(|note| (UNCHECKED_CONFIG, format!("{hash} {note}")));
    let records = reconfiguration.into_iter().chain(unchecked_record);
    let config_map = build_config(&observed.controller, &configuration, records);
    plan.steps.push(Step::ApplyConfig(Box::new(config_map)));
    plan.config = Some(ConfigPlan {
        decision,
        hash,
        candidate,
        unchecked,
        confirmation,
        refused_node_sets,
        ignored_name,
        warnings,
    });
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
