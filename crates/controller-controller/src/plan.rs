//! Decides what the children of a Controller should be, and which of its daemons is spoken to.

use crate::build::{
    ConfigError, Files, Hashes, Rendered, ServiceMonitor, Sources, build_candidate, build_check,
    build_config, build_internal_service, build_service, build_service_monitor, build_stateful_set, render,
};
use crate::observe::{Observed, Report};
use crate::rollout::{Pending, Situation, Step, decide};
use crate::status::{UNCONFIRMED, confirmed};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use operator_runtime::references::ReferenceError;
use operator_runtime::{Class, Classify, Exact, Missing};
use pod_builder::{BuildError, hash_bytes, hash_files, hash_values};
use serde_json::Value;
use slinky_api::conditions::{self, CONFIGURED};
use slinky_api::labels::{CONTROLLER_ACTIVE, annotations};
use slinky_api::names::{check_object_name, controller as names};
use slinky_api::v1beta1::Controller;
use std::sync::Arc;
use std::time::Duration;

/// When kubelets that do not seem to have mounted a configuration are told again.
const REMINDER: SignedDuration = SignedDuration::from_secs(15);

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
    pub service: Result<Exact<Service>, Obstacle>,
    /// The Service that names each daemon.
    pub internal_service: Result<Exact<Service>, Obstacle>,
    /// The StatefulSet.
    pub stateful_set: Workload,
    /// Pods to be marked as active, or not any more.
    pub marks: Vec<(String, bool)>,
    /// Pods whose kubelets are to be told of the configuration, and what they are told.
    pub announcements: Vec<(String, String)>,
    /// What the user asked for and cannot have.
    pub ignored: Option<&'static str>,
}

/// What becomes of the StatefulSet.
pub enum Workload {
    /// It should be this.
    Apply(Box<Exact<StatefulSet>>),
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
    pub check: Option<(ConfigMap, Exact<Pod>)>,
    /// The name of the configuration that should be in force after this pass.
    pub name: String,
    /// What is odd about the configuration.
    pub rendered: Rendered,
}

/// Why a child is not made.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// Something that the spec refers to is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Something that the spec refers to cannot be read.
    #[error(transparent)]
    Reference(#[from] Arc<ReferenceError>),
    /// There can be no such configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A ConfigMap cannot have this name.
    #[error("{0:?} cannot be the name of a ConfigMap ({1})")]
    Misnamed(String, &'static str),
    /// Several daemons need a state that they share.
    #[error("ha.enabled needs persistence.existingClaim to name a claim that all daemons can mount")]
    NothingShared,
    /// Several daemons cannot mount the claim.
    #[error(
        "ha.enabled needs a claim with access mode ReadWriteMany, which PersistentVolumeClaim {0} is not"
    )]
    NotShared(String),
    /// There is nothing that slurmctld could start with.
    #[error("slurmctld has no configuration to start with")]
    NoConfig,
}

impl Classify for Obstacle {
    fn class(&self) -> Class {
        match self {
            Self::Missing(missing) => missing.class(),
            Self::Reference(error) => error.class(),
            Self::Config(_) | Self::Build(_) | Self::Misnamed(..) | Self::NothingShared | Self::NoConfig => {
                Class::Invalid
            }
            // Claims are not watched.
            Self::NotShared(_) => Class::Waiting(Duration::from_mins(1)),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Missing(missing) => missing.category(),
            Self::Reference(error) => error.category(),
            Self::Config(ConfigError::Refused(_)) => "ConfigRefused",
            Self::Config(ConfigError::Value(_))
            | Self::Build(_)
            | Self::Misnamed(..)
            | Self::NothingShared => "InvalidSpec",
            Self::NotShared(_) => "ClaimNotShared",
            Self::NoConfig => "NoConfig",
        }
    }
}

/// Decides.
pub fn plan(controller: &Controller, observed: &Observed, delay: Duration, now: Timestamp) -> Plan {
    let rendered = render_config(controller, observed);
    let service_monitor = build_service_monitor(controller);
    if controller.spec.external {
        let config = rendered.map(|rendered| settled(controller, observed, Step::Write(None), rendered));
        return Plan { daemons: None, config, service_monitor, pending: None };
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
    let is_decided = !matches!(
        &config,
        Ok(Config { step: Step::Settle(_) | Step::Check | Step::AwaitCheck(_) | Step::Refuse(_), .. })
    );
    let announcements =
        config.as_ref().map_or(vec![], |config| announcements(controller, observed, config, now));
    let daemons = Daemons {
        service: build_service(controller).map_err(Obstacle::from),
        internal_service: build_internal_service(controller).map_err(Obstacle::from),
        stateful_set: match stateful_set {
            _ if !is_decided => Workload::Leave,
            Err(obstacle) => Workload::Blocked(obstacle),
            Ok(_) if is_of_old_form(controller, observed) => Workload::Recreate,
            Ok(set) => Workload::Apply(Box::new(set)),
        },
        marks: marks(controller, observed),
        announcements,
        ignored: ignored_persistence(controller, observed),
    };
    Plan { daemons: Some(daemons), config, service_monitor, pending }
}

fn render_config(controller: &Controller, observed: &Observed) -> Result<Rendered, Obstacle> {
    let spec = &controller.spec;
    if let Some(reference) = &spec.accounting_ref
        && observed.accounting.is_none()
    {
        // Without its Accounting the cluster would go on, unaccounted.
        return Err(Missing::Accounting(reference.name.clone()).into());
    }
    for name in spec.config_map_names().into_iter().filter(|_| !spec.external) {
        check_object_name(name).map_err(|problem| Obstacle::Misnamed(name.to_owned(), problem))?;
        if !observed.config_maps.contains_key(name) {
            return Err(Missing::ConfigMap(name.to_owned()).into());
        }
    }
    let sources = Sources {
        accounting: observed.accounting.as_deref(),
        node_sets: &observed.node_sets,
        config_maps: &observed.config_maps,
        in_force: observed.files(),
    };
    Ok(render(controller, &sources)?)
}

fn build_daemons(
    controller: &Controller,
    observed: &Observed,
    files: &Files,
) -> Result<Exact<StatefulSet>, Obstacle> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    if controller.spec.is_highly_available() {
        let claim = persistence.existing_claim().filter(|_| persistence.enabled);
        let claim = claim.ok_or(Obstacle::NothingShared)?;
        let modes =
            observed.shared_claim.as_ref().and_then(|claim| claim.spec.as_ref()?.access_modes.clone());
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
    let hashes = Hashes { slurm_key: key_hash(&observed.slurm_key)?, jwt_key: key_hash(&observed.jwt_key)? };
    Ok(build_stateful_set(controller, files, &hashes, observed.stateful_set.as_deref())?)
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
        is_running: observed.files().is_some() && observed.pods.iter().any(|pod| is_ready(pod)),
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
    let service = observed.stateful_set.as_ref().and_then(|set| set.spec.as_ref()?.service_name.clone());
    observed.stateful_set.is_some() && service != Some(names::internal_service(&controller.name_any()))
}

/// Clients are led to the active daemon. Without news the mark stays where it is.
fn marks(controller: &Controller, observed: &Observed) -> Vec<(String, bool)> {
    let name = controller.name_any();
    let marked = observed.active_pod().map(|pod| pod.name_any());
    let active = match observed.active {
        _ if !controller.spec.is_highly_available() => names::pod(&name, 0),
        Some(ordinal) => names::pod(&name, ordinal),
        None => marked.unwrap_or_else(|| names::pod(&name, 0)),
    };
    let pods = observed.pods.iter().map(|pod| (pod, pod.name_any() == active));
    pods.filter(|(pod, active)| pod.labels().contains_key(CONTROLLER_ACTIVE) != *active)
        .map(|(pod, active)| (pod.name_any(), active))
        .collect()
}

/// A kubelet looks at mounted files once a minute, and at once when its pod changes: so the pod is told.
fn announcements(
    controller: &Controller,
    observed: &Observed,
    config: &Config,
    now: Timestamp,
) -> Vec<(String, String)> {
    let is_wanted = controller.spec.inplace_reconfigure
        && matches!(config.step, Step::Keep | Step::Write(_))
        && !confirmed(controller, &config.name)
        && observed.report != Some(Report::Took(config.name.clone()));
    if !is_wanted {
        return vec![];
    }
    let conditions =
        controller.status.iter().flat_map(|status| &status.conditions).cloned().collect::<Vec<_>>();
    let gave_up =
        conditions::find(&conditions, CONFIGURED).is_some_and(|condition| condition.reason == UNCONFIRMED);
    let due = |pod: &Pod| match announced(pod) {
        Some((told, at)) if told == config.name => !gave_up && now.duration_since(at) > REMINDER,
        _ => true,
    };
    let value = format!("{} {now}", config.name);
    observed.pods.iter().filter(|pod| due(pod)).map(|pod| (pod.name_any(), value.clone())).collect()
}

/// What a pod's kubelet was told, and when.
fn announced(pod: &Pod) -> Option<(&str, Timestamp)> {
    let (name, at) = pod.annotations().get(annotations::CONFIG)?.split_once(' ')?;
    Some((name, at.parse().ok()?))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Claim templates never change, so neither does whether the state outlives the pod.
fn ignored_persistence(controller: &Controller, observed: &Observed) -> Option<&'static str> {
    let persistence = controller.spec.persistence.clone().unwrap_or_default();
    let live = observed.stateful_set.as_ref()?.spec.as_ref()?.volume_claim_templates.clone();
    let claim = live.unwrap_or_default().into_iter().next().map(|claim| claim.spec.unwrap_or_default());
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
