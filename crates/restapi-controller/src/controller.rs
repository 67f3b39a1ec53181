//! Watches RestApis, their children and their Controllers, and reconciles one RestApi at a time.

use crate::execute::execute;
use crate::observe::observe;
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use operator_runtime::{
    Class, Classify, RawObject, Runtime, Scope, StepErrors, apply, referrers, spec_changes,
};
use slinky_api::labels::{APP_NAME, App};
use slinky_api::v1beta1::{Controller, RestApi};
use std::sync::Arc;
use tracing::instrument;

/// What a reconcile works with.
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

/// Why a RestApi is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What there is could not be read.
    #[error("the API server did not answer as expected")]
    Observe(#[from] kube::Error),
    /// Children could not be made.
    #[error(transparent)]
    Steps(#[from] StepErrors),
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] apply::Error),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Observe(error) => error.class(),
            Self::Steps(error) => error.class(),
            Self::Status(error) => error.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Observe(error) => error.category(),
            Self::Steps(error) => error.category(),
            Self::Status(error) => error.category(),
        }
    }
}

/// Starts the controller in every namespace that is watched.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let children = || watcher::Config::default().labels(&format!("{APP_NAME}={}", RestApi::NAME));
            let (controllers, controller_changes) = scope.cache(watcher::Config::default());
            let controller_changes = spec_changes(controller_changes, controllers.clone());
            let (services, service_changes) = scope.cache(children());
            let (deployments, deployment_changes) = scope.cache(children());
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
            scope.run_controller(controller, reconcile, Arc::new(context)).await;
            Ok(())
        })
        .await
}

#[instrument(skip_all, fields(namespace = restapi.namespace(), name = restapi.name_any()))]
async fn reconcile(restapi: Arc<RestApi>, context: Arc<Context>) -> Result<Action, Error> {
    if restapi.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let observed = observe(&restapi, &context).await?;
    let plan = plan(&restapi, &observed);
    let outcome = execute(plan, &restapi, &observed, &context.scope).await;
    #[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
    let now = Timestamp::now();
    context.scope.applier().apply_status(restapi.as_ref(), &status(&restapi, &outcome, now)).await?;
    outcome.result?;
    Ok(Action::await_change())
}
