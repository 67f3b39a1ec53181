//! What an Accounting has and depends on: children from caches, Secrets and ConfigMaps read by name and kept nowhere.

use crate::controller::Context;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::{Api, Client, ResourceExt};
use operator_runtime::references::{ReferenceError, ResolvedKey, resolve_key};
use operator_runtime::{RawObject, cached_or_live, find};
use slinky_api::names::accounting::workload;
use slinky_api::v1beta1::Accounting;
use std::sync::Arc;

/// The children that there are.
#[derive(Default)]
pub struct Children {
    /// The Service of slurmdbd.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The Secret with slurmdbd.conf.
    pub config: Option<Secret>,
    /// The StatefulSet of slurmdbd.
    pub stateful_set: Option<Arc<RawObject<StatefulSet>>>,
}

/// What a reference to a Secret leads to.
pub type SecretKey = Result<ResolvedKey<Secret>, ReferenceError>;

/// What the references lead to.
pub struct References {
    /// The password of the database.
    pub password: SecretKey,
    /// The key of the Slurm daemons.
    pub slurm_key: SecretKey,
    /// The key that tokens are signed with.
    pub jwt_key: SecretKey,
    /// Keys of other token issuers, if there are any.
    pub jwks: Option<Result<ResolvedKey<ConfigMap>, ReferenceError>>,
}

/// Looks for the children.
pub async fn observe_children(accounting: &Accounting, context: &Context) -> Result<Children, kube::Error> {
    let namespace = accounting.namespace().unwrap_or_default();
    let name = workload(&accounting.name_any());
    let secrets: Api<Secret> = Api::namespaced(context.scope.client(), &namespace);
    Ok(Children {
        service: find(&context.services, &namespace, &name),
        config: secrets.get_opt(&name).await?,
        stateful_set: cached_or_live(&context.stateful_sets, context.scope.client(), &namespace, &name)
            .await?,
    })
}

/// Reads what the Accounting refers to.
pub async fn observe_references(accounting: &Accounting, client: &Client) -> References {
    let namespace = accounting.namespace().unwrap_or_default();
    let spec = &accounting.spec;
    let password = spec.storage_config.as_ref().map(|storage| &storage.password_key_ref);
    let secret = |field, selector| resolve_key(client.clone(), &namespace, field, selector);
    let jwks = async {
        let selector = spec.jwks_key_ref.as_ref()?;
        Some(resolve_key(client.clone(), &namespace, "spec.jwksKeyRef", Some(selector)).await)
    };
    let (password, slurm_key, jwt_key, jwks) = tokio::join!(
        secret("spec.storageConfig.passwordKeyRef", password),
        secret("spec.slurmKeyRef", spec.slurm_key_ref.as_ref()),
        secret("spec.jwtKeyRef", spec.signing_key_ref()),
        jwks,
    );
    References { password, slurm_key, jwt_key, jwks }
}
