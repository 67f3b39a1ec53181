//! `RestApi`: slurmrestd.

use super::common::{LocalObjectReference, PodTemplate, ServiceTemplate, one};
use crate::{Raw, schema};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Slurm's REST API: slurmrestd for one Slurm cluster.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "slinky.slurm.net",
    version = "v1beta1",
    kind = "RestApi",
    plural = "restapis",
    shortname = "slurmrestd",
    namespaced,
    status = "RestApiStatus",
    derive = "PartialEq",
    doc = "Slurm's REST API: slurmrestd for one Slurm cluster."
)]
#[serde(rename_all = "camelCase")]
pub struct RestApiSpec {
    /// The Controller of the Slurm cluster to serve.
    pub controller_ref: LocalObjectReference,
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Overrides for the slurmrestd container.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub slurmrestd: Raw<Container>,
    /// Overrides for the slurmrestd pods.
    pub template: Option<PodTemplate>,
    /// Overrides for the Service.
    pub service: Option<ServiceTemplate>,
}

/// Observed state of a RestApi.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestApiStatus {
    /// Conditions of the current state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
