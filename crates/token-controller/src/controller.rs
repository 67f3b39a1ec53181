//! Watches Tokens and the Secrets they depend on, and reconciles one Token at a time.

use crate::execute::execute;
use crate::expiry::{Expiry, expiry_event, unverified_claims};
use crate::metrics::ExpiringTokens;
use crate::observe::observe;
use crate::plan::{self, plan, renewal_after};
use crate::status::status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use operator_runtime::{Requeued, Runtime, Scope, referrers};
use slinky_api::v1beta1::Token;
use std::sync::Arc;

/// Starts the controller in every watched namespace.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    let expiring_tokens = &ExpiringTokens::register();
    runtime
        .for_each_scope(|scope| async move {
            let controller = scope.controller::<Token>(watcher::Config::default());
            let tokens = controller.store();
            expiring_tokens.add(tokens.clone());
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

/// Reports the expiry of the old token in time, also if it cannot be renewed.
async fn reconcile(
    token: Arc<Token>,
    scope: Arc<Scope>,
    now: Timestamp,
) -> Result<Action, Requeued<plan::Error>> {
    let observed = observe(token, &scope.client()).await;
    let token = observed.token.as_ref();
    let outcome = execute(plan(&observed, now), &observed, &scope).await;
    let claims = outcome.as_ref().ok().cloned().flatten().or_else(|| unverified_claims(&observed));
    let expiry = claims.as_ref().and_then(|claims| Expiry::of(token, claims));
    let requeue_after = expiry.as_ref().and_then(|expiry| expiry.until_change(now));
    let failed = |error| Requeued::new(error, requeue_after);
    let status = status(&observed, &outcome, expiry.as_ref(), now);
    scope.applier().apply_status(token, &status).await.map_err(|error| failed(error.into()))?;
    let before = token.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if let Some(event) = expiry_event(before, &status.conditions) {
        scope.events().publish(token, event);
    }
    let renewal_after = outcome.map_err(failed)?.and_then(|claims| renewal_after(&observed, &claims, now));
    let requeue_after = [renewal_after, requeue_after].into_iter().flatten().min();
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
}
