//! Reads the children and the references of a LoginSet: children from caches, Secrets by name. No Secret is cached.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::Store;
use operator_runtime::references::{ReferenceError, ResolvedKey, resolve_key};
use operator_runtime::{RawObject, Scope, cached_or_live, find, get_secret};
use slinky_api::names::{ssh_config, ssh_host_keys};
use slinky_api::v1beta1::{Controller, LoginSet};
use std::sync::Arc;

/// What observations are read from: the caches of one scope, and its client.
pub struct Sources {
    /// The clients.
    pub scope: Scope,
    /// The domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// The Controllers that LoginSets refer to.
    pub controllers: Store<Controller>,
    /// The ConfigMaps of login pods.
    pub configs: Store<ConfigMap>,
    /// The Services of login pods.
    pub services: Store<RawObject<Service>>,
    /// The Deployments of login pods.
    pub deployments: Store<RawObject<Deployment>>,
    /// The metadata of login pods.
    pub pods: Store<PartialObjectMeta<Pod>>,
}

/// Everything that a decision about a LoginSet depends on.
pub struct Observed {
    /// The LoginSet.
    pub loginset: Arc<LoginSet>,
    /// The domain of the Kubernetes cluster.
    pub cluster_domain: String,
    /// The Slurm cluster, if its Controller exists.
    pub cluster: Option<Cluster>,
    /// The sssd.conf of the pods.
    pub sssd_conf: SecretKey,
    /// The Secret with the ssh host keys.
    pub host_keys: Result<Option<Secret>, Arc<ReferenceError>>,
    /// The ConfigMap with `sshd_config`.
    pub config: Option<Arc<ConfigMap>>,
    /// The Service of the pods.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The Deployment of the pods.
    pub deployment: Option<Arc<RawObject<Deployment>>>,
    /// The login pods of all LoginSets.
    pub pods: Vec<Arc<PartialObjectMeta<Pod>>>,
}

/// A resolved reference to a key of a Secret.
pub type SecretKey = Result<ResolvedKey<Secret>, Arc<ReferenceError>>;

/// A Slurm cluster.
pub struct Cluster {
    /// Its Controller.
    pub controller: Arc<Controller>,
    /// The key that its daemons share.
    pub slurm_key: SecretKey,
}

/// Reads the state of one LoginSet.
pub async fn observe(loginset: Arc<LoginSet>, sources: &Sources) -> Result<Observed, kube::Error> {
    let client = sources.scope.client();
    let namespace = loginset.namespace().unwrap_or_default();
    let name = loginset.name_any();
    let cluster = async {
        let controller = find(&sources.controllers, &namespace, &loginset.spec.controller_ref.name)?;
        let (field, key) = ("spec.slurmKeyRef of the Controller", controller.spec.slurm_key_ref.as_ref());
        let slurm_key = resolve_key(client.clone(), &namespace, field, key).await.map_err(Arc::new);
        Some(Cluster { controller, slurm_key })
    };
    let sssd_conf =
        resolve_key(client.clone(), &namespace, "spec.sssdConfRef", Some(&loginset.spec.sssd_conf_ref));
    let host_keys_name = ssh_host_keys(&name);
    let host_keys = get_secret(client.clone(), &namespace, &host_keys_name);
    let (cluster, sssd_conf, host_keys) = tokio::join!(cluster, sssd_conf, host_keys);
    // After the references: a Deployment that was created meanwhile, by the operator that ours replaces, is seen.
    let deployment = cached_or_live(&sources.deployments, client.clone(), &namespace, &name).await?;
    Ok(Observed {
        cluster_domain: sources.cluster_domain.clone(),
        cluster,
        sssd_conf: sssd_conf.map_err(Arc::new),
        host_keys,
        config: find(&sources.configs, &namespace, &ssh_config(&name)),
        service: find(&sources.services, &namespace, &name),
        deployment,
        pods: sources.pods.state(),
        loginset,
    })
}
