//! `LoginSet`: pods that users log in to.

use super::common::{LocalObjectReference, PodTemplate, SecretKeySelector, ServiceTemplate, is_zero, one};
use crate::{Raw, schema};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Pods with sshd and the Slurm commands, for users to log in to.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "slinky.slurm.net",
    version = "v1beta1",
    kind = "LoginSet",
    plural = "loginsets",
    shortname = "loginsets",
    shortname = "lss",
    shortname = "sackd",
    namespaced,
    status = "LoginSetStatus",
    derive = "PartialEq",
    doc = "Pods with sshd and the Slurm commands, for users to log in to.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "REPLICAS", type_ = "integer", json_path = ".status.replicas")
)]
#[serde(rename_all = "camelCase")]
pub struct LoginSetSpec {
    /// The Controller of the Slurm cluster to log in to.
    pub controller_ref: LocalObjectReference,
    /// Number of pods.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Overrides for the login container.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub login: Raw<Container>,
    /// Overrides for the container that prepares /etc/slurm.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub initconf: Raw<Container>,
    /// Overrides for the login pods.
    pub template: Option<PodTemplate>,
    /// Content of root's `authorized_keys`.
    pub root_ssh_authorized_keys: Option<String>,
    /// Lines to append to `sshd_config`.
    pub extra_sshd_config: Option<String>,
    /// The sssd.conf, which defines the users who may log in.
    pub sssd_conf_ref: SecretKeySelector,
    /// How the Deployment replaces pods.
    pub strategy: Option<DeploymentStrategy>,
    /// Overrides for the Service.
    pub service: Option<ServiceTemplate>,
}

/// How a Deployment replaces pods.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStrategy {
    /// `Recreate` or `RollingUpdate`.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// Limits of a rolling update.
    pub rolling_update: Option<RollingUpdateDeployment>,
}

/// Limits of a Deployment's rolling update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdateDeployment {
    /// Maximum number of pods above `replicas`, as a number or a percentage.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_surge: Raw<IntOrString>,
    /// Maximum number of unavailable pods, as a number or a percentage.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub max_unavailable: Raw<IntOrString>,
}

/// Observed state of a LoginSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoginSetStatus {
    /// Number of pods.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Conditions of the current state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Label selector of the pods, for the scale subresource.
    pub selector: String,
}
