//! Watches LoginSets, their children and the objects that they refer to, and reconciles one LoginSet at a time.

use crate::execute::execute;
use crate::observe::{Sources, observe};
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use operator_runtime::{
    Class, Classify, ComponentError, MissingReference, Runtime, changed_by, changed_objects, children_of,
    find, referrers, spec_changes,
};
use slinky_api::labels::APP_INSTANCE;
use slinky_api::names::ssh_host_keys;
use slinky_api::v1beta1::{Controller, LoginSet};
use std::sync::Arc;

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Error(#[from] ComponentError);

impl Classify for Error {
    fn class(&self) -> Class {
        self.0.class()
    }

    fn category(&self) -> &'static str {
        let category = self.0.category();
        // Events have always had this reason for a missing Controller; conditions have that of the reference.
        let is_missing_controller = category == MissingReference::Controller(String::new()).category();
        if is_missing_controller { "ControllerRefFailed" } else { category }
    }
}

/// Starts the controller in every watched namespace.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let (controllers, controller_changes) = scope.cache(watcher::Config::default());
            let controller_changes = spec_changes(controller_changes, controllers.clone());
            let (configs, config_changes) = scope.cache(children_of::<LoginSet>());
            let (services, service_changes) = scope.cache(children_of::<LoginSet>());
            let (deployments, deployment_changes) = scope.cache(children_of::<LoginSet>());
            let (pods, pod_events) = scope.metadata::<Pod>(children_of::<LoginSet>());
            let pod_changes = changed_objects(pods.clone(), pod_events);
            let pod_changes = changed_by(pod_changes, pods.clone(), |pod| pod.labels().clone());
            let secret_changes = scope.changes::<Secret>(watcher::Config::default());
            let controller = scope.controller::<LoginSet>(watcher::Config::default());
            let (by_controller, by_secret, clusters) =
                (controller.store(), controller.store(), controllers.clone());
            let controller = controller
                .owns_stream(config_changes)
                .owns_stream(service_changes)
                .owns_stream(deployment_changes)
                .watches_stream(pod_changes, |pod| loginset_of(&pod))
                .watches_stream(controller_changes, move |controller| {
                    referrers(&by_controller, &controller, |loginset, name| {
                        loginset.spec.controller_ref.name == name
                    })
                })
                .watches_stream(secret_changes, move |secret| {
                    referrers(&by_secret, &secret, |loginset, name| {
                        let namespace = loginset.namespace().unwrap_or_default();
                        let cluster = find(&clusters, &namespace, &loginset.spec.controller_ref.name);
                        depends_on_secret(loginset, cluster.as_deref(), name)
                    })
                });
            let sources = Sources {
                scope: scope.clone(),
                cluster_domain: scope.cluster_domain(),
                controllers,
                configs,
                services,
                deployments,
                pods,
            };
            let reconcile = |loginset, sources, now| async move {
                Ok::<_, Error>(reconcile(loginset, sources, now).await?)
            };
            scope.run_component(controller, sources, reconcile).await;
            Ok(())
        })
        .await
}

/// The LoginSet that the labels of a pod name.
fn loginset_of(pod: &PartialObjectMeta<Pod>) -> Option<ObjectRef<LoginSet>> {
    let name = pod.labels().get(APP_INSTANCE)?;
    Some(ObjectRef::new(name).within(&pod.namespace().unwrap_or_default()))
}

/// Whether the pods of a LoginSet mount this Secret.
fn depends_on_secret(loginset: &LoginSet, controller: Option<&Controller>, name: &str) -> bool {
    let slurm_key = controller.and_then(|controller| controller.spec.slurm_key_ref.as_ref());
    loginset.spec.sssd_conf_ref.name == name
        || ssh_host_keys(&loginset.name_any()) == name
        || slurm_key.is_some_and(|key| key.name == name)
}

async fn reconcile(
    loginset: Arc<LoginSet>,
    sources: Arc<Sources>,
    now: Timestamp,
) -> Result<Action, ComponentError> {
    let observed = observe(loginset, &sources).await?;
    // Boxed: it holds many objects at once.
    let outcome = Box::pin(execute(plan(&observed), &observed, &sources.scope)).await;
    let status = status(&observed, &outcome, now);
    sources.scope.applier().apply_status(observed.loginset.as_ref(), &status).await?;
    outcome.result?;
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
    #[case::unrelated("other", false)]
    fn change_of_a_mounted_secret_enqueues_the_loginset(#[case] name: &str, #[case] is_enqueued: bool) {
        assert_eq!(depends_on_secret(&loginset(&json!({})), Some(&controller()), name), is_enqueued);
    }

    #[test]
    fn event_reason_of_a_missing_controller_differs_from_its_condition_reason() {
        let missing = MissingReference::Controller("slurm".to_owned());
        let error = ComponentError::Obstacle(missing.clone().into());
        assert_eq!((error.category(), Error(error).category()), (missing.category(), "ControllerRefFailed"));
    }
}
