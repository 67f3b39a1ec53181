//! Reads the Controller and the children of a RestApi from caches. The Deployment is read live if it is not cached.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use operator_runtime::{RawObject, Scope, cached_or_live, find};
use slinky_api::names::restapi_workload;
use slinky_api::v1beta1::{Controller, RestApi};
use std::sync::Arc;

/// What observations are read from: the caches of one scope, and its client.
pub struct Sources {
    /// The clients.
    pub scope: Scope,
    /// The Controllers that RestApis refer to.
    pub controllers: Store<Controller>,
    /// The Services of slurmrestd.
    pub services: Store<RawObject<Service>>,
    /// The Deployments of slurmrestd.
    pub deployments: Store<RawObject<Deployment>>,
}

/// Everything that a decision about a RestApi depends on.
pub struct Observed {
    /// The RestApi.
    pub restapi: Arc<RestApi>,
    /// The Controller of the Slurm cluster.
    pub controller: Option<Arc<Controller>>,
    /// The Service of slurmrestd.
    pub service: Option<Arc<RawObject<Service>>>,
    /// The Deployment of slurmrestd.
    pub deployment: Option<Arc<RawObject<Deployment>>>,
}

/// Reads the state of one RestApi.
pub async fn observe(restapi: Arc<RestApi>, sources: &Sources) -> Result<Observed, kube::Error> {
    let namespace = restapi.namespace().unwrap_or_default();
    let child = restapi_workload(&restapi.name_any());
    // Before the Deployment: one that was created meanwhile, by the operator that ours replaces, is seen.
    let controller = find(&sources.controllers, &namespace, &restapi.spec.controller_ref.name);
    let deployment = cached_or_live(&sources.deployments, sources.scope.client(), &namespace, &child).await?;
    Ok(Observed { controller, service: find(&sources.services, &namespace, &child), deployment, restapi })
}
