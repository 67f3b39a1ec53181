//! Reads the children and the references of an Accounting: Service and StatefulSet from caches, Secrets and ConfigMaps
//! by name. No Secret is cached.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use operator_runtime::references::{ReferenceError, ResolvedKey, resolve_key};
use operator_runtime::{RawObject, Scope, cached_or_live, find, get_secret};
use slinky_api::names::accounting::workload;
use slinky_api::v1beta1::Accounting;
use std::sync::Arc;

/// What observations are read from: the caches of one scope, and its client.
pub struct Sources {
    /// The clients.
    pub scope: Scope,
    /// The Services of slurmdbd.
    pub services: Store<RawObject<Service>>,
    /// The StatefulSets of slurmdbd.
    pub stateful_sets: Store<RawObject<StatefulSet>>,
}

/// Everything that a decision about an Accounting depends on.
pub struct Observed {
    /// The Accounting.
    pub accounting: Arc<Accounting>,
    /// The Service of slurmdbd.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The Secret with slurmdbd.conf.
    pub config: Result<Option<Secret>, Arc<ReferenceError>>,
    /// The StatefulSet of slurmdbd.
    pub stateful_set: Option<Arc<RawObject<StatefulSet>>>,
    /// The references of the spec; `None` if slurmdbd is external, because an external one needs none of them.
    pub references: Option<References>,
}

/// A resolved reference to a key of a `K`.
pub type Key<K> = Result<ResolvedKey<K>, Arc<ReferenceError>>;

/// The resolved references of the spec.
pub struct References {
    /// The password of the database.
    pub password: Key<Secret>,
    /// The key that the Slurm daemons share.
    pub slurm_key: Key<Secret>,
    /// The key that tokens are signed with.
    pub jwt_key: Key<Secret>,
    /// Public keys of other token issuers, if the spec names any.
    pub jwks: Option<Key<ConfigMap>>,
}

/// Reads the state of one Accounting.
pub async fn observe(accounting: Arc<Accounting>, sources: &Sources) -> Result<Observed, kube::Error> {
    let client = sources.scope.client();
    let namespace = accounting.namespace().unwrap_or_default();
    let name = workload(&accounting.name_any());
    let references = if accounting.spec.external {
        None
    } else {
        // Boxed: it holds several objects at once.
        Some(Box::pin(resolve_references(&accounting, &client)).await)
    };
    // The children after the references: one that was created meanwhile, by the operator that ours replaces, is seen.
    let config = get_secret(client.clone(), &namespace, &name).await;
    let stateful_set = cached_or_live(&sources.stateful_sets, client, &namespace, &name).await?;
    let service = find(&sources.services, &namespace, &name);
    Ok(Observed { accounting, service, config, stateful_set, references })
}

async fn resolve_references(accounting: &Accounting, client: &Client) -> References {
    let namespace = accounting.namespace().unwrap_or_default();
    let spec = &accounting.spec;
    let password = spec.storage_config.as_ref().map(|storage| &storage.password_key_ref);
    let secret = async |field, selector| {
        resolve_key(client.clone(), &namespace, field, selector).await.map_err(Arc::new)
    };
    let jwks = async {
        let selector = Some(spec.jwks_key_ref.as_ref()?);
        Some(resolve_key(client.clone(), &namespace, "spec.jwksKeyRef", selector).await.map_err(Arc::new))
    };
    let (password, slurm_key, jwt_key, jwks) = tokio::join!(
        secret("spec.storageConfig.passwordKeyRef", password),
        secret("spec.slurmKeyRef", spec.slurm_key_ref.as_ref()),
        secret("spec.jwtKeyRef", spec.signing_key_ref()),
        jwks,
    );
    References { password, slurm_key, jwt_key, jwks }
}
