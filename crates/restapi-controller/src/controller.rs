//! Watches RestApis, their children and their Controllers, and reconciles one RestApi at a time.

use crate::execute::execute;
use crate::observe::{Sources, observe};
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use operator_runtime::{ComponentError, Runtime, children_of, referrers, spec_changes};
use slinky_api::v1beta1::RestApi;
use std::sync::Arc;

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
            let sources = Sources { scope: scope.clone(), controllers, services, deployments };
            scope.run_component(controller, sources, reconcile).await;
            Ok(())
        })
        .await
}

async fn reconcile(
    restapi: Arc<RestApi>,
    sources: Arc<Sources>,
    now: Timestamp,
) -> Result<Action, ComponentError> {
    let observed = observe(restapi, &sources).await?;
    let outcome = execute(plan(&observed), &observed, &sources.scope).await;
    let status = status(&observed, &outcome, now);
    sources.scope.applier().apply_status(observed.restapi.as_ref(), &status).await?;
    outcome.result?;
    Ok(Action::await_change())
}
