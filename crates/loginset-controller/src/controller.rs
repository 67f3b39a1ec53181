//! Watches LoginSets, their children and what they refer to, and reconciles one LoginSet at a time.

use crate::execute::execute;
use crate::observe::{observe_children, observe_references};
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use operator_runtime::{
    Class, Classify, MissingReference, RawObject, Runtime, Scope, StepErrors, apply, find, referrers,
    spec_changes,
};
use slinky_api::labels::{APP_NAME, App};
use slinky_api::names::ssh_host_keys;
use slinky_api::v1beta1::{Controller, LoginSet};
use std::sync::Arc;
use tracing::instrument;

/// What a reconcile works with.
pub struct Context {
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
}

/// Why a LoginSet is not what it should be.
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
            // What Events have called it ever since; the conditions call it what it is.
            Self::Steps(error)
                if error.category() == MissingReference::Controller(String::new()).category() =>
            {
                "ControllerRefFailed"
            }
            Self::Steps(error) => error.category(),
            Self::Status(error) => error.category(),
        }
    }
}

/// Starts the controller in every namespace that is watched.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let children = || watcher::Config::default().labels(&format!("{APP_NAME}={}", LoginSet::NAME));
            let (controllers, controller_changes) = scope.cache(watcher::Config::default());
            let controller_changes = spec_changes(controller_changes, controllers.clone());
            let (configs, config_changes) = scope.cache(children());
            let (services, service_changes) = scope.cache(children());
            let (deployments, deployment_changes) = scope.cache(children());
            let secret_changes = scope.changes::<Secret>(watcher::Config::default());
            let controller = scope.controller::<LoginSet>(watcher::Config::default());
            let (loginsets, users, clusters) = (controller.store(), controller.store(), controllers.clone());
            let controller = controller
                .owns_stream(config_changes)
                .owns_stream(service_changes)
                .owns_stream(deployment_changes)
                .watches_stream(controller_changes, move |controller| {
                    referrers(&loginsets, &controller, |loginset, name| {
                        loginset.spec.controller_ref.name == name
                    })
                })
                .watches_stream(secret_changes, move |secret| {
                    referrers(&users, &secret, |loginset, name| {
                        let namespace = loginset.namespace().unwrap_or_default();
                        let cluster = find(&clusters, &namespace, &loginset.spec.controller_ref.name);
                        depends_on_secret(loginset, cluster.as_deref(), name)
                    })
                });
            let context = Context {
                scope: scope.clone(),
                cluster_domain: scope.cluster_domain(),
                controllers,
                configs,
                services,
                deployments,
            };
            scope.run_controller(controller, reconcile, Arc::new(context)).await;
            Ok(())
        })
        .await
}

/// Whether the pods of a LoginSet have something of this Secret.
fn depends_on_secret(loginset: &LoginSet, controller: Option<&Controller>, name: &str) -> bool {
    let slurm_key = controller.and_then(|controller| controller.spec.slurm_key_ref.as_ref());
    loginset.spec.sssd_conf_ref.name == name
        || ssh_host_keys(&loginset.name_any()) == name
        || slurm_key.is_some_and(|key| key.name == name)
}

#[instrument(skip_all, fields(namespace = loginset.namespace(), name = loginset.name_any()))]
async fn reconcile(loginset: Arc<LoginSet>, context: Arc<Context>) -> Result<Action, Error> {
    if loginset.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let children = observe_children(&loginset, &context).await?;
    let references = observe_references(&loginset, &context).await;
    let plan = plan(&loginset, references);
    let outcome = execute(plan, &loginset, &children, &context).await;
    #[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
    let now = Timestamp::now();
    let status = status(&loginset, &children, &outcome, now);
    context.scope.applier().apply_status(loginset.as_ref(), &status).await?;
    outcome?;
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{controller, loginset};
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::sssd_conf("sssd", true)]
    #[case::host_keys("front-ssh-host-keys", true)]
    #[case::slurm_key("auth", true)]
    #[case::of_no_concern("other", false)]
    fn the_secrets_of_a_loginset(#[case] name: &str, #[case] concerned: bool) {
        assert_eq!(depends_on_secret(&loginset(&json!({})), Some(&controller()), name), concerned);
    }
}
