//! Watches Tokens and the Secrets they depend on, and reconciles one Token at a time.

use crate::execute::execute;
use crate::observe::observe;
use crate::plan::{Error, plan, requeue_after};
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use operator_runtime::{Runtime, Scope, referrers};
use slinky_api::v1beta1::Token;
use std::sync::Arc;

/// Starts the controller in every watched namespace.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let controller = scope.controller::<Token>(watcher::Config::default());
            let tokens = controller.store();
            let secrets = scope.changes::<Secret>(watcher::Config::default());
            let controller =
                controller.watches_stream(secrets, move |secret| referrers(&tokens, &secret, depends_on));
            scope.run_component(controller, scope.clone(), reconcile).await;
            Ok(())
        })
        .await
}

/// Whether a Token is signed with a key in this Secret, or is kept in it.
fn depends_on(token: &Token, secret: &str) -> bool {
    token.secret_name() == secret || token.spec.signing_key_ref().is_some_and(|key| key.name == secret)
}

async fn reconcile(token: Arc<Token>, scope: Arc<Scope>, now: Timestamp) -> Result<Action, Error> {
    let observed = observe(token, &scope.client()).await;
    let outcome = execute(plan(&observed, now), &observed, &scope).await;
    let status = status(&observed, &outcome, now);
    scope.applier().apply_status(observed.token.as_ref(), &status).await?;
    let requeue_after = outcome?.and_then(|claims| requeue_after(&observed, &claims, now));
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
}
