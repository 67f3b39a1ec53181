//! `Controller`: a Slurm cluster's slurmctld.

use super::common::{
    ConfigMapKeySelector, ExternalConfig, LocalObjectReference, PodTemplate, SecretKeySelector,
    ServiceTemplate, enabled,
};
use crate::{Raw, TypeMismatch, schema};
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaimSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;
use std::fmt;

const HA_RULE: schema::Rule = (
    "has(self.ha) && self.ha.enabled ? has(self.persistence) && self.persistence.enabled && self.persistence.existingClaim.size() > 0 : true",
    "Slurm HA requires persistence.existingClaim to name a PersistentVolumeClaim with access mode ReadWriteMany",
);

/// Most backups. Each is a pod, and every daemon asks all of them in turn when the first ones do not answer.
pub const MAX_BACKUPS: i32 = 9;

/// A Slurm cluster: its slurmctld, or the address of an external one.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "slinky.slurm.net",
    version = "v1beta1",
    kind = "Controller",
    plural = "controllers",
    shortname = "slurmctld",
    namespaced,
    status = "ControllerStatus",
    derive = "PartialEq",
    doc = "A Slurm cluster: slurmctld, its configuration and its Services."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(schema::DAEMON_RULES.iter().chain([&HA_RULE]))))]
pub struct ControllerSpec {
    /// Name of the Slurm cluster; `<namespace>_<name>` if not set.
    pub cluster_name: Option<String>,
    /// The key with which Slurm daemons authenticate each other.
    pub slurm_key_ref: Option<SecretKeySelector>,
    /// Deprecated: use `jwtKeyRef`.
    pub jwt_hs256_key_ref: Option<SecretKeySelector>,
    /// The key that signs JSON Web Tokens.
    pub jwt_key_ref: Option<SecretKeySelector>,
    /// Public keys of other token issuers (JWKS).
    pub jwks_key_ref: Option<ConfigMapKeySelector>,
    /// The Accounting of this cluster; none if not set.
    pub accounting_ref: Option<LocalObjectReference>,
    /// True if slurmctld is external.
    #[serde(default)]
    pub external: bool,
    /// Address of the external slurmctld.
    pub external_config: Option<ExternalConfig>,
    /// Standby slurmctld daemons.
    pub ha: Option<HighAvailability>,
    /// Overrides for the slurmctld container.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub slurmctld: Raw<Container>,
    /// True to apply configuration changes with `scontrol reconfigure` instead of a restart.
    #[serde(default)]
    pub inplace_reconfigure: bool,
    /// Overrides for the container that runs `scontrol reconfigure`.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub reconfigure: Raw<Container>,
    /// Overrides for the container that prints slurmctld's log.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub logfile: Raw<Container>,
    /// Overrides for the slurmctld pod.
    pub template: Option<PodTemplate>,
    /// Lines to append to slurm.conf.
    pub extra_conf: Option<String>,
    /// ConfigMaps whose keys become files in /etc/slurm.
    #[schemars(extend("nullable" = true))]
    pub config_file_refs: Option<Vec<LocalObjectReference>>,
    /// ConfigMaps with prolog scripts for the nodes.
    #[schemars(extend("nullable" = true))]
    pub prolog_script_refs: Option<Vec<LocalObjectReference>>,
    /// ConfigMaps with epilog scripts for the nodes.
    #[schemars(extend("nullable" = true))]
    pub epilog_script_refs: Option<Vec<LocalObjectReference>>,
    /// ConfigMaps with prolog scripts for slurmctld.
    #[schemars(extend("nullable" = true))]
    pub prolog_slurmctld_script_refs: Option<Vec<LocalObjectReference>>,
    /// ConfigMaps with epilog scripts for slurmctld.
    #[schemars(extend("nullable" = true))]
    pub epilog_slurmctld_script_refs: Option<Vec<LocalObjectReference>>,
    /// The volume for slurmctld's state.
    pub persistence: Option<Persistence>,
    /// Overrides for the client Service.
    pub service: Option<ServiceTemplate>,
    /// Slurm's Prometheus metrics.
    pub metrics: Option<Metrics>,
}

/// Standby slurmctld daemons that take over when the active one fails.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["enabled"]))]
pub struct HighAvailability {
    /// True to run backups.
    #[serde(default)]
    pub enabled: bool,
    /// Number of backups.
    #[serde(default = "super::common::one")]
    #[schemars(range(min = 1, max = MAX_BACKUPS))]
    pub backups: i32,
}

/// The volume for slurmctld's state. Further fields are those of a PersistentVolumeClaim's spec.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["enabled"]))]
pub struct Persistence {
    /// False to keep the state in the pod, where it is lost with the pod.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// An existing PersistentVolumeClaim to use instead of one that the operator creates.
    pub existing_claim: Option<String>,
    /// The spec of the PersistentVolumeClaim that the operator creates, as the user's JSON.
    #[serde(flatten)]
    #[schemars(schema_with = "schema::volume_claim")]
    pub claim: Map<String, Value>,
}

impl Default for Persistence {
    fn default() -> Self {
        Self { enabled: true, existing_claim: None, claim: Map::new() }
    }
}

impl Persistence {
    /// The existing PersistentVolumeClaim; an empty name counts as not set.
    pub fn existing_claim(&self) -> Option<&str> {
        self.existing_claim.as_deref().filter(|name| !name.is_empty())
    }

    /// The typed spec of the PersistentVolumeClaim to create.
    pub fn claim_spec(&self) -> Result<PersistentVolumeClaimSpec, TypeMismatch> {
        Raw::new(Value::Object(self.claim.clone())).read().map(Option::unwrap_or_default)
    }
}

/// Slurm's Prometheus metrics.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// True to make slurmctld serve metrics.
    #[serde(default)]
    pub enabled: bool,
    /// The ServiceMonitor that makes Prometheus scrape them.
    #[schemars(extend("nullable" = true))]
    pub service_monitor: Option<ServiceMonitor>,
}

/// A ServiceMonitor of the Prometheus operator.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// True to create the ServiceMonitor.
    #[serde(default)]
    pub enabled: bool,
    /// Labels of the ServiceMonitor.
    #[schemars(extend("nullable" = true))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the ServiceMonitor.
    #[schemars(extend("nullable" = true))]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Scrape interval.
    #[serde(default)]
    #[schemars(schema_with = "schema::prometheus_duration")]
    pub interval: Option<String>,
    /// Scrape timeout.
    #[serde(default)]
    #[schemars(schema_with = "schema::prometheus_duration")]
    pub scrape_timeout: Option<String>,
    /// Metrics to scrape; all of Slurm's if not set.
    #[schemars(extend("nullable" = true))]
    pub endpoints: Option<Vec<MetricsEndpoint>>,
}

/// One path of Slurm's metrics.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsEndpoint {
    /// The path, such as `/metrics/jobs`.
    pub path: String,
    /// Scrape interval; that of the ServiceMonitor if not set.
    #[serde(default)]
    #[schemars(schema_with = "schema::prometheus_duration")]
    pub interval: Option<String>,
    /// Scrape timeout; that of the ServiceMonitor if not set.
    #[serde(default)]
    #[schemars(schema_with = "schema::prometheus_duration")]
    pub scrape_timeout: Option<String>,
}

impl ControllerSpec {
    /// The signing key: the current field wins over the deprecated one.
    pub fn signing_key_ref(&self) -> Option<&SecretKeySelector> {
        self.jwt_key_ref.as_ref().or(self.jwt_hs256_key_ref.as_ref())
    }

    /// Number of slurmctld daemons, the primary included. The schema refuses more than [`MAX_BACKUPS`] backups; a number that
    /// was stored before is not used.
    pub fn daemons(&self) -> i32 {
        match &self.ha {
            Some(ha) if ha.enabled && !self.external => 1 + ha.backups.clamp(1, MAX_BACKUPS),
            _ => 1,
        }
    }

    /// ConfigMaps whose keys become files in /etc/slurm, sorted; duplicates are kept.
    pub fn config_map_names(&self) -> Vec<&str> {
        let references = [
            &self.config_file_refs,
            &self.prolog_script_refs,
            &self.epilog_script_refs,
            &self.prolog_slurmctld_script_refs,
            &self.epilog_slurmctld_script_refs,
        ];
        let references = references.into_iter().flatten().flatten();
        let mut names: Vec<&str> = references.map(|reference| reference.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// True if standby daemons are configured.
    pub fn is_highly_available(&self) -> bool {
        self.daemons() > 1
    }
}

/// A NodeSet that is not in slurm.conf as its spec says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedNodeSet {
    /// Name of the NodeSet.
    pub name: String,
    /// Why.
    pub message: String,
}

impl fmt::Display for RefusedNodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeSet {}: {}", self.name, self.message)
    }
}

/// Observed state of a Controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// NodeSets that are not in slurm.conf as their specs say: what is in force for them stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub refused_node_sets: Vec<RefusedNodeSet>,
    /// Conditions of the current state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
