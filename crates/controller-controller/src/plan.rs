//! Decides what the children of a Controller should be, and which of its daemons is spoken to.

mod obstacle;
mod pods;

pub use obstacle::Obstacle;

use crate::build::{
    Files, Hashes, Rendered, ServiceMonitor, Sources, build_candidate, build_check, build_config,
    build_internal_service, build_service, build_service_monitor, build_stateful_set, render,
};
use crate::observe::Observed;
use crate::rollout::{Pending, Situation, Step, decide};
use crate::status::has_run;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use operator_runtime::references::ReferenceError;
use operator_runtime::{MissingReference, RawObject};
use pod_builder::{hash_bytes, hash_files, hash_values};
use pods::{announcements, is_ready, marks, stuck};
use serde_json::Value;
use slinky_api::names::{check_object_name, check_stateful_set_name, controller as names};
use slinky_api::ownership::is_controlled_by;
use slinky_api::v1beta1::Controller;
use std::sync::Arc;
use std::time::Duration;

/// What should be.
pub struct Plan {
    /// The daemons and how they are reached; `None` if they run elsewhere, and what there is goes.
    pub daemons: Option<Daemons>,
    /// The configuration.
    pub config: Result<Config, Obstacle>,
    /// The ServiceMonitor, if one is wanted.
    pub service_monitor: Option<ServiceMonitor>,
    /// The change of configuration that is waiting.
    pub pending: Option<Pending>,
}

/// The daemons and how they are reached.
pub struct Daemons {
    /// The Service for clients.
    pub service: Result<RawObject<Service>, Obstacle>,
    /// The Service that names each daemon.
    pub internal_service: Result<RawObject<Service>, Obstacle>,
    /// The StatefulSet.
    pub stateful_set: Workload,
    /// Pods to be marked as active, or not any more.
    pub marks: Vec<(String, bool)>,
    /// Pods whose kubelets are to be told of the configuration, and what they are told.
    pub announcements: Vec<(String, String)>,
    /// Pods that do not start and stand in the way of those that would.
    pub stuck: Vec<Arc<Pod>>,
    /// What the user asked for and cannot have.
    pub ignored: Option<&'static str>,
}

/// What becomes of the StatefulSet.
pub enum Workload {
    /// It should be this.
    Apply(Box<RawObject<StatefulSet>>),
    /// It has to be made anew around its pods, because Kubernetes does not let it change.
    Recreate,
    /// It stays as it is until the configuration is decided on.
    Leave,
    /// It cannot be what it should.
    Blocked(Obstacle),
}

/// The configuration.
pub struct Config {
    /// What to do about it.
    pub step: Step,
    /// The ConfigMap as it should be now.
    pub in_force: ConfigMap,
    /// The check, where one is due.
    pub check: Option<(ConfigMap, RawObject<Pod>)>,
    /// The name of the configuration that should be in force after this pass.
    pub name: String,
    /// What is odd about the configuration.
    pub rendered: Rendered,
}

/// Decides. An error means that nothing can be made at all.
pub fn plan(
    controller: &Controller,
    observed: &Observed,
    delay: Duration,
    now: Timestamp,
) -> Result<Plan, Obstacle> {
    let rendered = render_config(controller, observed);
    let service_monitor = build_service_monitor(controller);
    if controller.spec.external {
        let config = rendered.map(|rendered| {
            let is_in_force = observed.files() == Some(&rendered.files);
            let step = if is_in_force { Step::Keep } else { Step::Write(None) };
            settled(controller, observed, step, rendered)
        });
        return Ok(Plan { daemons: None, config, service_monitor, pending: None });
    }
    // The Services have longer names, and Kubernetes allows them longer ones by as much.
    let name = names::workload(&controller.name_any());
    if let Err(problem) = check_stateful_set_name(&name) {
        return Err(Obstacle::Name { name, problem });
    }
    // What slurmctld starts with if the configuration cannot be made: the old one goes on.
    let files = rendered.as_ref().ok().map(|rendered| &rendered.files).or(observed.files());
    let stateful_set = match files {
        Some(files) => build_daemons(controller, observed, files),
        None => Err(Obstacle::NoConfig),
    };
    let mut pending = None;
    let config = rendered.and_then(|rendered| {
        let template = stateful_set.as_ref().ok().or(observed.stateful_set.as_deref());
        let template = template.and_then(|set| set.as_json().pointer("/spec/template"));
        let (config, waiting) = plan_config(controller, observed, rendered, template, delay, now)?;
        pending = waiting;
        Ok(config)
    });
    // Pods without the configuration that they are meant for may not come up: those that run go on.
    let is_decided = match &config {
        Ok(config) => matches!(config.step, Step::Keep | Step::Write(_)),
        Err(_) => observed.stateful_set.is_none(),
    };
    let announcements =
        config.as_ref().map_or(vec![], |config| announcements(controller, observed, config, now));
    let daemons = Daemons {
        service: build_service(controller).map_err(Obstacle::from),
        internal_service: build_internal_service(controller).map_err(Obstacle::from),
        stateful_set: match stateful_set {
            Err(obstacle) => Workload::Blocked(obstacle),
            Ok(_) if !is_decided => Workload::Leave,
            Ok(_) if is_of_old_form(controller, observed) => Workload::Recreate,
            Ok(set) => Workload::Apply(Box::new(set)),
        },
        marks: marks(controller, observed),
        announcements,
        stuck: stuck(observed),
        ignored: ignored_persistence(controller, observed),
    };
    Ok(Plan { daemons: Some(daemons), config, service_monitor, pending })
}

fn render_config(controller: &Controller, observed: &Observed) -> Result<Rendered, Obstacle> {
    let spec = &controller.spec;
    if let Some(reference) = &spec.accounting_ref
        && observed.accounting.is_none()
    {
        // Without its Accounting the cluster would go on, unaccounted.
        return Err(MissingReference::Accounting(reference.name.clone()).into());
    }
    let config_maps = observed.config_maps.as_ref().map_err(Arc::clone)?;
    for name in spec.config_map_names().into_iter().filter(|_| !spec.external) {
        check_object_name(name).map_err(|problem| Obstacle::Misnamed(name.to_owned(), problem))?;
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
    Ok(render(controller, &sources)?)
}

fn build_daemons(
    controller: &Controller,
    observed: &Observed,
    files: &Files,
) -> Result<RawObject<StatefulSet>, Obstacle> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    if controller.spec.is_highly_available() {
        let claim = persistence.existing_claim().filter(|_| persistence.enabled);
        let claim = claim.ok_or(Obstacle::NothingShared)?;
        if claim_template(observed).is_some() {
            return Err(Obstacle::OwnVolume);
        }
        let shared = observed.shared_claim.as_ref().map_err(Arc::clone)?;
        let modes = shared.as_ref().and_then(|claim| claim.spec.as_ref()?.access_modes.clone());
        if modes.is_some_and(|modes| !modes.iter().any(|mode| mode == "ReadWriteMany")) {
            return Err(Obstacle::NotShared(claim.to_owned()));
        }
    }
    let key_hash = |key: &Result<Secret, Arc<ReferenceError>>| match key {
        Ok(secret) => Ok(secret.data.as_ref().map_or_else(String::new, |data| {
            hash_values(&data.iter().map(|(key, value)| (key.clone(), &value.0)).collect())
        })),
        Err(error) => Err(Obstacle::Reference(error.clone())),
    };
    if let Err(error) = &observed.jwks {
        return Err(Obstacle::Reference(error.clone()));
    }
    let brought = observed.etc(controller, &Files::new());
    let hashes = Hashes {
        slurm_key: key_hash(&observed.slurm_key)?,
        jwt_key: key_hash(&observed.jwt_key)?,
        files: (!brought.is_empty()).then(|| hash_files(&brought)),
    };
    Ok(build_stateful_set(controller, files, hashes, observed.stateful_set.as_deref())?)
}

fn plan_config(
    controller: &Controller,
    observed: &Observed,
    rendered: Rendered,
    template: Option<&Value>,
    delay: Duration,
    now: Timestamp,
) -> Result<(Config, Option<Pending>), Obstacle> {
    let id =
        hash_bytes(format!("{}{}", hash_files(&rendered.files), template.unwrap_or(&Value::Null)).as_bytes());
    let (step, pending) = decide(&Situation {
        id: &id,
        is_in_force: observed.files() == Some(&rendered.files),
        // One that is being restarted is no less worth keeping.
        is_running: observed.files().is_some()
            && (has_run(controller) || observed.pods.iter().any(|pod| is_ready(pod))),
        check: observed.check.as_deref(),
        pending: observed.pending.as_ref(),
        delay,
        now,
    });
    let check = match (&step, template) {
        (Step::Check, Some(template)) => Some((
            build_candidate(controller, rendered.files.clone()),
            build_check(controller, template, &id)?,
        )),
        _ => None,
    };
    Ok((Config { check, ..settled(controller, observed, step, rendered) }, pending))
}

/// The configuration as it is in force after this pass.
fn settled(controller: &Controller, observed: &Observed, step: Step, rendered: Rendered) -> Config {
    let files = match step {
        Step::Keep | Step::Write(_) => rendered.files.clone(),
        Step::Settle(_) | Step::Check | Step::AwaitCheck(_) | Step::Refuse(_) => {
            observed.files().cloned().unwrap_or_default()
        }
    };
    let name = hash_files(&observed.etc(controller, &files));
    Config { step, in_force: build_config(controller, files), check: None, name, rendered }
}

/// An operator before us named another Service, which Kubernetes does not let us change.
fn is_of_old_form(controller: &Controller, observed: &Observed) -> bool {
    observed.stateful_set.as_ref().is_some_and(|set| {
        let service = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
        is_controlled_by(&set.metadata, controller)
            && service != Some(names::internal_service(&controller.name_any()))
    })
}

/// The claim template that slurmctld was made with.
fn claim_template(observed: &Observed) -> Option<&PersistentVolumeClaim> {
    observed.stateful_set.as_ref()?.spec.as_ref()?.volume_claim_templates.as_ref()?.first()
}

/// Claim templates never change, so neither does whether the state outlives the pod.
fn ignored_persistence(controller: &Controller, observed: &Observed) -> Option<&'static str> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    observed.stateful_set.as_ref()?;
    let claim = claim_template(observed).map(|claim| claim.spec.clone().unwrap_or_default());
    let wants_claim = persistence.enabled && persistence.existing_claim().is_none();
    match claim {
        Some(_) if !wants_claim => {
            Some("slurmctld keeps the volume that it was made with: persistence cannot change later")
        }
        None if wants_claim => Some("slurmctld gets no volume of its own: persistence cannot change later"),
        Some(claim) => {
            let wanted = persistence.claim_spec().ok()?;
            let differs = wanted.storage_class_name.is_some()
                && wanted.storage_class_name != claim.storage_class_name
                || wanted.access_modes.is_some() && wanted.access_modes != claim.access_modes;
            differs.then_some(
                "slurmctld keeps the volume that it was made with: persistence cannot change later",
            )
        }
        None => None,
    }
}

#[cfg(test)]
mod tests;
