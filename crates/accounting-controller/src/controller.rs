//! Watches Accountings, their children and what they refer to, and reconciles one Accounting at a time.

use crate::execute::{execute, remove};
use crate::observe::{observe_children, observe_references};
use crate::plan::plan;
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use operator_runtime::{Class, Classify, RawObject, Runtime, Scope, StepErrors, apply, referrers};
use slinky_api::labels::{APP_NAME, App};
use slinky_api::names::accounting::workload;
use slinky_api::names::check_stateful_set_name;
use slinky_api::v1beta1::{Accounting, SecretKeySelector};
use std::sync::Arc;
use tracing::instrument;

/// What a reconcile works with.
pub struct Context {
    /// The clients.
    pub scope: Scope,
    /// The Services of slurmdbd.
    pub services: Store<RawObject<Service>>,
    /// The StatefulSets of slurmdbd.
    pub stateful_sets: Store<RawObject<StatefulSet>>,
}

/// What a pass came to.
pub enum Outcome {
    /// slurmdbd runs elsewhere.
    External,
    /// slurmdbd runs here, in this StatefulSet.
    Running(Box<RawObject<StatefulSet>>),
    /// A child is on its way out and will be made anew.
    Replacing,
}

/// Why an Accounting is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The children would have names that Kubernetes does not take.
    #[error("metadata.name: {name:?} cannot be the name of a StatefulSet ({problem})")]
    Name {
        /// The name of the children.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The configuration that there is could not be read.
    #[error("cannot read the Secret with the configuration")]
    Read(#[from] kube::Error),
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
            Self::Name { .. } => Class::Invalid,
            Self::Read(error) => error.class(),
            Self::Steps(error) => error.class(),
            Self::Status(error) => error.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Name { .. } => "InvalidName",
            Self::Read(error) => error.category(),
            Self::Steps(error) => error.category(),
            Self::Status(error) => error.category(),
        }
    }
}

/// Starts the controller in every namespace that is watched.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let children = || watcher::Config::default().labels(&format!("{APP_NAME}={}", Accounting::NAME));
            let (services, service_changes) = scope.cache(children());
            let (stateful_sets, stateful_set_changes) = scope.cache(children());
            let controller = scope.controller::<Accounting>(watcher::Config::default());
            let accountings = controller.store();
            let users = accountings.clone();
            let controller = controller
                .owns_stream(service_changes)
                .owns_stream(stateful_set_changes)
                .watches_stream(scope.changes::<Secret>(watcher::Config::default()), move |secret| {
                    referrers(&accountings, &secret, depends_on_secret)
                })
                .watches_stream(scope.changes::<ConfigMap>(watcher::Config::default()), move |map| {
                    referrers(&users, &map, depends_on_config_map)
                });
            let context = Context { scope: scope.clone(), services, stateful_sets };
            scope.run_controller(controller, reconcile, Arc::new(context)).await;
            Ok(())
        })
        .await
}

/// Whether the configuration or the pod of an Accounting has something of this Secret, or is kept in it.
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

#[instrument(skip_all, fields(namespace = accounting.namespace(), name = accounting.name_any()))]
async fn reconcile(accounting: Arc<Accounting>, context: Arc<Context>) -> Result<Action, Error> {
    if accounting.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    // Boxed: it holds many objects at once.
    let outcome = Box::pin(converge(&accounting, &context)).await;
    #[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
    let now = Timestamp::now();
    context.scope.applier().apply_status(accounting.as_ref(), &status(&accounting, &outcome, now)).await?;
    outcome?;
    Ok(Action::await_change())
}

async fn converge(accounting: &Accounting, context: &Context) -> Result<Outcome, Error> {
    let children = observe_children(accounting, context).await?;
    if accounting.spec.external {
        remove(accounting, &children, &context.scope).await?;
        return Ok(Outcome::External);
    }
    let name = workload(&accounting.name_any());
    if let Err(problem) = check_stateful_set_name(&name) {
        return Err(Error::Name { name, problem });
    }
    let references = observe_references(accounting, &context.scope.client()).await;
    let plan = plan(accounting, &children, references);
    let stateful_set = execute(plan, accounting, &children, &context.scope).await?;
    Ok(stateful_set.map_or(Outcome::Replacing, |stateful_set| Outcome::Running(Box::new(stateful_set))))
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
    #[case::the_configuration_itself("books-accounting", true)]
    #[case::of_no_concern("other", false)]
    fn the_secrets_of_an_accounting(#[case] name: &str, #[case] concerned: bool) {
        assert_eq!(depends_on_secret(&accounting(&json!({})), name), concerned);
    }

    #[test]
    fn the_deprecated_reference_to_the_jwt_key_counts_where_the_new_one_is_not_made() {
        let old = json!({ "name": "old", "key": "k" });
        let both = accounting(&json!({ "jwtHs256KeyRef": old }));
        assert!(!depends_on_secret(&both, "old"));
        let deprecated = accounting(&json!({ "jwtHs256KeyRef": old, "jwtKeyRef": null }));
        assert!(depends_on_secret(&deprecated, "old"));
    }

    #[test]
    fn the_config_map_of_an_accounting() {
        let with_jwks = accounting(&json!({ "jwksKeyRef": { "name": "issuers", "key": "k" } }));
        assert!(depends_on_config_map(&with_jwks, "issuers"));
        assert!(!depends_on_config_map(&with_jwks, "other"));
        assert!(!depends_on_config_map(&accounting(&json!({})), "issuers"));
    }
}
