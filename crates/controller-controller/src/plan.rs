//! Decides which writes a Controller needs, in which order. No I/O, no clock: the same state and time give the same plan.

mod config;
mod daemons;
mod obstacle;
mod pods;
mod refusals;
mod rollout;

pub use config::{ConfigPlan, Confirmation, STARTING, has_run, short_hash};
pub use daemons::PersistenceProblem;
pub use obstacle::{ControllerObstacle, Obstacle};
pub use pods::{ActiveDaemon, active_daemon};
pub use rollout::Decision;

use crate::build::{
    RefusedNodeSets, ServiceMonitor, build_internal_service, build_service, build_service_monitor,
};
use crate::observe::{Observed, PendingChange};
use config::{delete_check, plan_config, plan_external_config, render_config};
use daemons::{desired_stateful_set, detached_stateful_set, persistence_problem, stateful_set_step};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::{Resource, ResourceExt};
use operator_runtime::RawObject;
use pod_builder::BuildError;
use pods::{active_labels, is_label_selectable, stuck_pods};
use slinky_api::names::{check_stateful_set_name, controller as names};
use slinky_api::ownership::is_controlled_by;
use std::sync::Arc;

/// The writes that a Controller needs, and the decisions behind them.
#[derive(Debug, Default)]
pub struct Plan {
    /// The writes, in the order in which they are performed.
    pub steps: Vec<Step>,
    /// Children that cannot be built: the step that is left out, and why.
    pub obstacles: Vec<(&'static str, Obstacle)>,
    /// The decisions about the configuration; `None` if it cannot be rendered.
    pub config: Option<ConfigPlan>,
    /// The configuration change that has not taken effect yet.
    pub pending: Option<PendingChange>,
    /// The NodeSets that slurmctld refused, or may have refused.
    pub refusals: RefusedNodeSets,
    /// What keeps `persistence` from taking effect.
    pub persistence: Option<PersistenceProblem>,
}

/// One write.
#[derive(Debug)]
pub enum Step {
    /// Applies the headless Service that gives each daemon its name.
    ApplyInternalService(Box<RawObject<Service>>),
    /// Applies the Service for clients.
    ApplyService(Box<RawObject<Service>>),
    /// Applies the ConfigMap with the configuration.
    ApplyConfig(Box<ConfigMap>),
    /// Creates the check pod and the ConfigMap with the configuration that it tries.
    CreateCheck {
        /// The ConfigMap.
        candidate: Box<ConfigMap>,
        /// The pod.
        pod: Box<RawObject<Pod>>,
    },
    /// Sets or removes the label of the active daemon.
    LabelPod {
        /// Name of the pod.
        pod: String,
        /// Whether its daemon is active.
        is_active: bool,
    },
    /// Applies the StatefulSet.
    ApplyStatefulSet(Box<RawObject<StatefulSet>>),
    /// Deletes the StatefulSet without its pods.
    OrphanPods(Arc<RawObject<StatefulSet>>),
    /// Writes the annotation that makes a pod's kubelet mount the configuration now.
    AnnotatePod {
        /// Name of the pod.
        pod: String,
        /// Value of the annotation.
        config: String,
    },
    /// Deletes a slurmctld pod that does not start, so that the StatefulSet replaces it.
    DeletePod(Arc<Pod>),
    /// Applies the ServiceMonitor.
    ApplyServiceMonitor(Box<ServiceMonitor>),
    /// Deletes the check pod.
    DeleteCheckPod(Arc<Pod>),
    /// Deletes the ConfigMap of the check pod.
    DeleteCandidate(Arc<ConfigMap>),
    /// Deletes the StatefulSet and its pods.
    DeleteStatefulSet(Arc<RawObject<StatefulSet>>),
    /// Deletes the Service for clients.
    DeleteService(Arc<RawObject<Service>>),
    /// Deletes the headless Service.
    DeleteInternalService(Arc<RawObject<Service>>),
    /// Deletes the ServiceMonitor.
    DeleteServiceMonitor(Box<ServiceMonitor>),
}

impl Plan {
    /// Adds the step that applies a child, or the obstacle that keeps it from being built.
    fn apply<K>(
        &mut self,
        name: &'static str,
        desired: Result<K, BuildError>,
        step: impl FnOnce(Box<K>) -> Step,
    ) {
        match desired {
            Ok(desired) => self.steps.push(step(Box::new(desired))),
            Err(error) => self.obstacles.push((name, Obstacle::invalid(error))),
        }
    }
}

/// Decides which writes a Controller needs.
pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if observed.controller.spec.external {
        plan_external(&mut plan, observed, now);
    } else {
        // The Services have longer names, and Kubernetes allows them longer ones by as much.
        let name = names::workload(&observed.controller.name_any());
        if let Err(problem) = check_stateful_set_name(&name) {
            plan.obstacles.push(("Plan", Obstacle::Name { kind: "StatefulSet", name, problem }));
            return plan;
        }
        plan_daemons(&mut plan, observed, now);
    }
    plan_service_monitor(&mut plan, observed);
    plan
}

/// The cluster is external: its daemons here are deleted, their volume stays, and clients get a configuration.
fn plan_external(plan: &mut Plan, observed: &Observed, now: Timestamp) {
    let stateful_set = owned(observed, observed.stateful_set.as_ref()).map(Step::DeleteStatefulSet);
    let service = owned(observed, observed.service.as_ref()).map(Step::DeleteService);
    let internal = owned(observed, observed.internal_service.as_ref()).map(Step::DeleteInternalService);
    plan.steps.extend([stateful_set, service, internal].into_iter().flatten());
    plan.steps.extend(delete_check(observed));
    match render_config(observed) {
        Ok((rendered, _)) => plan_external_config(plan, observed, rendered, now),
        Err(obstacle) => plan.obstacles.push(("Config", obstacle)),
    }
}

/// The cluster runs here.
fn plan_daemons(plan: &mut Plan, observed: &Observed, now: Timestamp) {
    let controller = &observed.controller;
    plan.refusals.clone_from(&observed.refusals);
    plan.apply("Internal Service", build_internal_service(controller), Step::ApplyInternalService);
    // Pods are labelled before the Service selects the label: without a labelled pod it would have no endpoint.
    plan.steps.extend(active_labels(observed));
    if is_label_selectable(observed) {
        plan.apply("Service", build_service(controller), Step::ApplyService);
    }
    let rendered = render_config(observed).map(|(rendered, refusals)| {
        plan.refusals = refusals;
        rendered
    });
    // While the desired configuration cannot be rendered, slurmctld starts with the one in force.
    let configuration = rendered.as_ref().ok().map(|rendered| rendered.configuration.clone());
    let stateful_set = configuration
        .or_else(|| observed.in_force())
        .ok_or(ControllerObstacle::NoConfig.into())
        .and_then(|configuration| desired_stateful_set(observed, &configuration));
    let template = stateful_set.as_ref().ok().or(observed.stateful_set.as_deref());
    let template = template.and_then(|set| set.as_json().pointer("/spec/template"));
    let mut pod_steps = vec![];
    match rendered.and_then(|rendered| plan_config(plan, observed, rendered, template, now)) {
        Ok(steps) => pod_steps = steps,
        Err(obstacle) => plan.obstacles.push(("Config", obstacle)),
    }
    // Pods without the configuration that they were built for may not start, so the running ones stay until it is in force.
    let is_settled = match &plan.config {
        Some(config) => config.decision.is_in_force(),
        None => observed.stateful_set.is_none(),
    };
    match stateful_set {
        Ok(desired) if is_settled => plan.steps.extend(stateful_set_step(observed, desired)),
        Ok(_) => {
            let detached = detached_stateful_set(observed);
            plan.steps.extend(detached.and_then(|desired| stateful_set_step(observed, desired)));
        }
        Err(obstacle) => plan.obstacles.push(("StatefulSet", obstacle)),
    }
    plan.steps.extend(pod_steps);
    plan.steps.extend(stuck_pods(observed).into_iter().map(Step::DeletePod));
    plan.persistence = persistence_problem(observed);
}

fn plan_service_monitor(plan: &mut Plan, observed: &Observed) {
    if let Some(desired) = build_service_monitor(&observed.controller) {
        plan.steps.push(Step::ApplyServiceMonitor(Box::new(desired)));
        return;
    }
    match &observed.service_monitor {
        Ok(Some(live)) if is_controlled_by(&live.metadata, observed.controller.as_ref()) => {
            plan.steps.push(Step::DeleteServiceMonitor(Box::new(live.clone())));
        }
        Ok(_) => {}
        Err(error) => plan.obstacles.push(("ServiceMonitor", Obstacle::Reference(error.clone()))),
    }
}

/// The live child, if this Controller controls it. Objects of other owners are never deleted.
fn owned<K: Resource>(observed: &Observed, live: Option<&Arc<K>>) -> Option<Arc<K>> {
    live.filter(|live| is_controlled_by(live.meta(), observed.controller.as_ref())).cloned()
}

#[cfg(test)]
mod tests;
