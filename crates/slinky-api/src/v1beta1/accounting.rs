//! `Accounting`: slurmdbd and its database.

use super::common::{ConfigMapKeySelector, ExternalConfig, PodTemplate, SecretKeySelector, ServiceTemplate};
use crate::{Raw, schema};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

const DEFAULT_STORAGE_PORT: i64 = 3306;
const DEFAULT_STORAGE_DATABASE: &str = "slurm_acct_db";

/// Slurm accounting: a slurmdbd that the operator runs, or an external one.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "slinky.slurm.net",
    version = "v1beta1",
    kind = "Accounting",
    plural = "accountings",
    shortname = "slurmdbd",
    namespaced,
    status = "AccountingStatus",
    derive = "PartialEq",
    doc = "Slurm accounting: slurmdbd and its database."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&schema::DAEMON_RULES)))]
pub struct AccountingSpec {
    /// The key with which Slurm daemons authenticate each other.
    pub slurm_key_ref: Option<SecretKeySelector>,
    /// Deprecated: use `jwtKeyRef`.
    pub jwt_hs256_key_ref: Option<SecretKeySelector>,
    /// The key that signs JSON Web Tokens.
    pub jwt_key_ref: Option<SecretKeySelector>,
    /// Public keys of other token issuers (JWKS).
    pub jwks_key_ref: Option<ConfigMapKeySelector>,
    /// True if slurmdbd is external; the operator then creates nothing.
    #[serde(default)]
    pub external: bool,
    /// Address of the external slurmdbd.
    pub external_config: Option<ExternalConfig>,
    /// Overrides for the slurmdbd container.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    pub slurmdbd: Raw<Container>,
    /// Overrides for the slurmdbd pod.
    pub template: Option<PodTemplate>,
    /// The database.
    pub storage_config: Option<StorageConfig>,
    /// Lines to append to slurmdbd.conf.
    pub extra_conf: Option<String>,
    /// Overrides for the Service.
    pub service: Option<ServiceTemplate>,
}

/// The MariaDB or MySQL database of slurmdbd.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageConfig {
    /// Host name of the database.
    pub host: String,
    /// Port of the database.
    #[serde(default = "default_storage_port")]
    #[schemars(schema_with = "schema::integer")]
    pub port: i64,
    /// Name of the database.
    #[serde(default = "default_storage_database")]
    pub database: String,
    /// User with which slurmdbd connects.
    pub username: Option<String>,
    /// That user's password.
    pub password_key_ref: SecretKeySelector,
}

const fn default_storage_port() -> i64 {
    DEFAULT_STORAGE_PORT
}

fn default_storage_database() -> String {
    DEFAULT_STORAGE_DATABASE.to_owned()
}

impl StorageConfig {
    /// The port; 0 counts as not set.
    pub const fn effective_port(&self) -> i64 {
        if self.port == 0 { DEFAULT_STORAGE_PORT } else { self.port }
    }

    /// The database name; an empty one counts as not set.
    pub fn effective_database(&self) -> &str {
        if self.database.is_empty() { DEFAULT_STORAGE_DATABASE } else { &self.database }
    }
}

impl AccountingSpec {
    /// The signing key: the current field wins over the deprecated one.
    pub fn signing_key_ref(&self) -> Option<&SecretKeySelector> {
        self.jwt_key_ref.as_ref().or(self.jwt_hs256_key_ref.as_ref())
    }
}

/// Observed state of an Accounting.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingStatus {
    /// Conditions of the current state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
