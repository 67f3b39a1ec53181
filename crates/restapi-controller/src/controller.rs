//! Watches RestApis, their children and their Controllers, and reconciles one RestApi at a time.

use crate::execute::execute;
use crate::observe::observe;
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use operator_runtime::{ComponentError, RawObject, Runtime, Scope, children_of, referrers, spec_changes};
use slinky_api::v1beta1::{Controller, RestApi};
use std::sync::Arc;

/// Clients and caches of a reconcile.
pub struct Context {
    /// The clients.
    pub scope: Scope,
    /// The Controllers that RestApis refer to.
    pub controllers: Store<Controller>,
    /// The Services of slurmrestd.
    pub services: Store<RawObject<Service>>,
    /// The Deployments of slurmrestd.
    pub deployments: Store<RawObject<Deployment>>,
}

/// Starts the controller in every watched namespace.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let (controllers, controller_changes) = scope.cache(watcher::Config::default());
            let controller_changes = spec_changes(controller_changes, controllers.clone());
            let (services, service_changes) = scope.cache(children_of::<RestApi>());
            let (deployments, deployment_changes) = scope.cache(children_of::<RestApi>());
            let controller = scope.controller::<RestApi>(watcher::Config::default());
            let restapis = controller.store();
            let controller = controller
                .owns_stream(service_changes)
                .owns_stream(deployment_changes)
                .watches_stream(controller_changes, move |controller| {
                    referrers(&restapis, &controller, |restapi, name| {
                        restapi.spec.controller_ref.name == name
                    })
                });
            let context = Context { scope: scope.clone(), controllers, services, deployments };
            scope.run_component(controller, context, reconcile).await;
            Ok(())
        })
        .await
}

async fn reconcile(
    restapi: Arc<RestApi>,
    context: Arc<Context>,
    now: Timestamp,
) -> Result<Action, ComponentError> {
    let observed = observe(restapi, &context).await?;
    let outcome = execute(plan(&observed), &observed, &context.scope).await;
    let status = status(&observed, &outcome, now);
    context.scope.applier().apply_status(observed.restapi.as_ref(), &status).await?;
    outcome.result?;
    Ok(Action::await_change())
}
