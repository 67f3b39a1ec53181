//! Watches Accountings, their children and the objects that they refer to, and reconciles one Accounting at a time.

use crate::build::ConfigError;
use crate::execute::execute;
use crate::observe::{Sources, observe};
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use operator_runtime::{ComponentError, Runtime, children_of, referrers};
use slinky_api::names::accounting::workload;
use slinky_api::v1beta1::{Accounting, SecretKeySelector};
use std::sync::Arc;

/// Starts the controller in every watched namespace.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let (services, service_changes) = scope.cache(children_of::<Accounting>());
            let (stateful_sets, stateful_set_changes) = scope.cache(children_of::<Accounting>());
            let controller = scope.controller::<Accounting>(watcher::Config::default());
            let (by_secret, by_config_map) = (controller.store(), controller.store());
            let controller = controller
                .owns_stream(service_changes)
                .owns_stream(stateful_set_changes)
                .watches_stream(scope.changes::<Secret>(watcher::Config::default()), move |secret| {
                    referrers(&by_secret, &secret, depends_on_secret)
                })
                .watches_stream(scope.changes::<ConfigMap>(watcher::Config::default()), move |map| {
                    referrers(&by_config_map, &map, depends_on_config_map)
                });
            let sources = Sources { scope: scope.clone(), services, stateful_sets };
            scope.run_component(controller, sources, reconcile).await;
            Ok(())
        })
        .await
}

/// Whether an Accounting refers to this Secret, or keeps slurmdbd.conf in it.
fn depends_on_secret(accounting: &Accounting, name: &str) -> bool {
    let spec = &accounting.spec;
    let password = spec.storage_config.as_ref().map(|storage| &storage.password_key_ref);
    let names = |selector: &SecretKeySelector| selector.name == name;
    [password, spec.slurm_key_ref.as_ref(), spec.signing_key_ref()].into_iter().flatten().any(names)
        || workload(&accounting.name_any()) == name
}

fn depends_on_config_map(accounting: &Accounting, name: &str) -> bool {
    accounting.spec.jwks_key_ref.as_ref().is_some_and(|selector| selector.name == name)
}

async fn reconcile(
    accounting: Arc<Accounting>,
    sources: Arc<Sources>,
    now: Timestamp,
) -> Result<Action, ComponentError<ConfigError>> {
    let observed = observe(accounting, &sources).await?;
    let outcome = execute(plan(&observed), &observed, &sources.scope).await;
    let status = status(&observed, &outcome, now);
    sources.scope.applier().apply_status(observed.accounting.as_ref(), &status).await?;
    outcome.result?;
    Ok(Action::await_change())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::accounting;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::password("db", true)]
    #[case::slurm_key("auth", true)]
    #[case::jwt_key("tokens", true)]
    #[case::slurmdbd_conf("books-accounting", true)]
    #[case::unrelated("other", false)]
    fn change_of_a_referenced_secret_enqueues_the_accounting(#[case] name: &str, #[case] is_enqueued: bool) {
        assert_eq!(depends_on_secret(&accounting(&json!({})), name), is_enqueued);
    }

    #[test]
    fn deprecated_jwt_key_reference_is_used_only_without_the_new_one() {
        let old = json!({ "name": "old", "key": "k" });
        let both = accounting(&json!({ "jwtHs256KeyRef": old }));
        assert!(!depends_on_secret(&both, "old"));
        let deprecated = accounting(&json!({ "jwtHs256KeyRef": old, "jwtKeyRef": null }));
        assert!(depends_on_secret(&deprecated, "old"));
    }

    #[test]
    fn change_of_the_jwks_config_map_enqueues_the_accounting() {
        let with_jwks = accounting(&json!({ "jwksKeyRef": { "name": "issuers", "key": "k" } }));
        assert!(depends_on_config_map(&with_jwks, "issuers"));
        assert!(!depends_on_config_map(&with_jwks, "other"));
        assert!(!depends_on_config_map(&accounting(&json!({})), "issuers"));
    }
}
