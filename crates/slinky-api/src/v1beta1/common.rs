//! Types that several kinds use.

use crate::Raw;
use crate::schema;
use k8s_openapi::api::core::v1::{PodSpec, ServiceSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// The name of an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct LocalObjectReference {
    /// Name of the object.
    #[serde(default)]
    pub name: String,
}

/// One key of a Secret in the same namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretKeySelector {
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
    /// The key to take from it.
    pub key: String,
    /// Accepted for compatibility with core/v1; a missing Secret or key is always reported.
    pub optional: Option<bool>,
}

/// One key of a ConfigMap in the same namespace.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ConfigMapKeySelector {
    /// Name of the ConfigMap.
    #[serde(default)]
    pub name: String,
    /// The key to take from it.
    pub key: String,
    /// Accepted for compatibility with core/v1; a missing ConfigMap or key is always reported.
    pub optional: Option<bool>,
}

/// Labels and annotations for an object that the operator creates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Labels to add.
    #[schemars(extend("nullable" = true))]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations to add.
    #[schemars(extend("nullable" = true))]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Additions to the pods that the operator creates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PodTemplate {
    /// Labels and annotations of the pods.
    pub metadata: Option<Metadata>,
    /// A core/v1 PodSpec, merged over the operator's defaults. No field is required.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub spec: Raw<PodSpec>,
}

/// Additions to a Service that the operator creates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTemplate {
    /// Labels and annotations of the Service.
    pub metadata: Option<Metadata>,
    /// A core/v1 ServiceSpec; the port of the component is added to its ports.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub spec: Raw<ServiceSpec>,
    /// Port of the Service; absent or 0 means the default port of the component.
    #[serde(default)]
    #[schemars(schema_with = "schema::integer")]
    pub port: Option<i64>,
    /// Node port of the component's port; absent or 0 lets Kubernetes choose.
    #[serde(default)]
    #[schemars(schema_with = "schema::integer")]
    pub node_port: Option<i64>,
}

/// The address of a daemon that the operator does not manage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalConfig {
    /// Host name or address.
    pub host: String,
    /// Port.
    #[schemars(schema_with = "schema::integer")]
    pub port: i64,
}

/// `serde(default = ...)` for fields that are true by default.
pub(super) const fn enabled() -> bool {
    true
}

/// `serde(default = ...)` for replica counts.
pub(super) const fn one() -> i32 {
    1
}

/// Status counters are omitted while they are zero.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) const fn is_zero(count: &i32) -> bool {
    *count == 0
}
