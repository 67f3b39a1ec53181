//! `Token`: a JSON Web Token for a Slurm user.

use super::common::{SecretKeySelector, enabled};
use crate::{Duration, Raw, TypeMismatch, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The default Slurm user of a Token.
const DEFAULT_USERNAME: &str = "nobody";
const DEFAULT_LIFETIME: std::time::Duration = std::time::Duration::from_mins(15);

/// A JSON Web Token for a Slurm user, stored in a Secret and renewed before it expires.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "slinky.slurm.net",
    version = "v1beta1",
    kind = "Token",
    plural = "tokens",
    shortname = "tokens",
    shortname = "jwt",
    namespaced,
    status = "TokenStatus",
    derive = "PartialEq",
    doc = "A JSON Web Token for a Slurm user, stored in a Secret and renewed before it expires.",
    printcolumn(name = "USER", type_ = "string", json_path = ".spec.username"),
    printcolumn(name = "IAT", type_ = "date", json_path = ".status.issuedAt")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("has(self.jwtKeyRef) || has(self.jwtHs256KeyRef)", "jwtKeyRef or jwtHs256KeyRef must be set"),
])))]
pub struct TokenSpec {
    /// Deprecated: use `jwtKeyRef`.
    pub jwt_hs256_key_ref: Option<SecretKeySelector>,
    /// The key that the token is signed with.
    pub jwt_key_ref: Option<SecretKeySelector>,
    /// The Slurm user of the token.
    pub username: String,
    /// Lifetime of the token, as a Go duration such as `1h30m`; 15 minutes if not set.
    #[serde(default, skip_serializing_if = "Raw::is_absent")]
    #[schemars(schema_with = "schema::duration")]
    pub lifetime: Raw<Duration>,
    /// False to issue the token once, in an immutable Secret.
    #[serde(default = "enabled")]
    pub refresh: bool,
    /// The Secret and key to write; `<name>-jwt-<username>` and `SLURM_JWT` if not set.
    pub secret_ref: Option<SecretKeySelector>,
}

impl TokenSpec {
    /// The signing key: the current field wins over the deprecated one.
    pub fn signing_key_ref(&self) -> Option<&SecretKeySelector> {
        self.jwt_key_ref.as_ref().or(self.jwt_hs256_key_ref.as_ref())
    }

    /// The Slurm user in the token.
    pub fn effective_username(&self) -> &str {
        if self.username.is_empty() { DEFAULT_USERNAME } else { &self.username }
    }

    /// The lifetime of the token. Zero and negative lifetimes count as not set: the token would be expired at once.
    pub fn effective_lifetime(&self) -> Result<std::time::Duration, TypeMismatch> {
        let lifetime = self.lifetime.read()?.and_then(Duration::length);
        Ok(lifetime.filter(|lifetime| !lifetime.is_zero()).unwrap_or(DEFAULT_LIFETIME))
    }
}

/// Observed state of a Token.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenStatus {
    /// When the current token was issued.
    #[serde(default)]
    #[schemars(schema_with = "schema::date_time")]
    pub issued_at: Option<Time>,
    /// Conditions of the current state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
