//! What a LoginSet has and depends on: children from caches, Secrets read by name and kept nowhere.

use crate::controller::Context;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::{Api, ResourceExt};
use operator_runtime::references::{ReferenceError, ResolvedKey, resolve_key};
use operator_runtime::{RawObject, cached_or_live, find};
use slinky_api::names::{ssh_config, ssh_host_keys};
use slinky_api::v1beta1::{Controller, LoginSet};
use std::sync::Arc;

/// The children that there are; the host keys are among the references, because they are never changed.
#[derive(Default)]
pub struct Children {
    /// The ConfigMap with `sshd_config`.
    pub config: Option<Arc<ConfigMap>>,
    /// The Service of the pods.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The Deployment of the pods.
    pub deployment: Option<Arc<RawObject<Deployment>>>,
}

/// What a reference to a Secret leads to.
pub type SecretKey = Result<ResolvedKey<Secret>, ReferenceError>;

/// What the pods depend on.
pub struct References {
    /// The Slurm cluster, if it is there.
    pub cluster: Option<Cluster>,
    /// Who may log in.
    pub sssd_conf: SecretKey,
    /// The ssh host keys, if there are any yet.
    pub host_keys: Result<Option<Secret>, ReferenceError>,
}

/// A Slurm cluster.
pub struct Cluster {
    /// Its Controller.
    pub controller: Arc<Controller>,
    /// The key of its daemons.
    pub slurm_key: SecretKey,
}

/// Looks for the children.
pub async fn observe_children(loginset: &LoginSet, context: &Context) -> Result<Children, kube::Error> {
    let namespace = loginset.namespace().unwrap_or_default();
    let name = loginset.name_any();
    let deployment = cached_or_live(&context.deployments, context.scope.client(), &namespace, &name).await?;
    Ok(Children {
        config: find(&context.configs, &namespace, &ssh_config(&name)),
        service: find(&context.services, &namespace, &name),
        deployment,
    })
}

/// Reads what the pods depend on.
pub async fn observe_references(loginset: &LoginSet, context: &Context) -> References {
    let client = context.scope.client();
    let namespace = loginset.namespace().unwrap_or_default();
    let cluster = async {
        let controller = find(&context.controllers, &namespace, &loginset.spec.controller_ref.name)?;
        let (field, key) = ("spec.slurmKeyRef of the Controller", controller.spec.slurm_key_ref.as_ref());
        let slurm_key = resolve_key(client.clone(), &namespace, field, key).await;
        Some(Cluster { controller, slurm_key })
    };
    let sssd_conf =
        resolve_key(client.clone(), &namespace, "spec.sssdConfRef", Some(&loginset.spec.sssd_conf_ref));
    let host_keys = async {
        let name = ssh_host_keys(&loginset.name_any());
        let found = Api::<Secret>::namespaced(client.clone(), &namespace).get_opt(&name).await;
        found.map_err(|source| ReferenceError::Unread { kind: "Secret".to_owned(), name, source })
    };
    let (cluster, sssd_conf, host_keys) = tokio::join!(cluster, sssd_conf, host_keys);
    References { cluster, sssd_conf, host_keys }
}
