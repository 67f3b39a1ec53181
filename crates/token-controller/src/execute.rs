//! Performs the steps of a plan on the Secret of a Token.

use crate::build::build_data;
use crate::observe::Observed;
use crate::plan::{Error, Issue, Plan, SecretWrite, Step};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use operator_runtime::{Scope, apply};
use serde_json::Value;
use slurm_jwt::Claims;
use tracing::info;

/// The claims of the token that the Secret holds now, `None` if the old Secret is being deleted; or why the Secret is not
/// as the Token wants it.
pub type Outcome = Result<Option<Claims>, Error>;

/// Performs the steps; the first that fails ends the plan.
pub async fn execute(plan: Plan, observed: &Observed, scope: &Scope) -> Outcome {
    let SecretWrite { owner_patch, step } = plan?;
    let mut live = observed.secret.as_ref().ok().cloned().flatten();
    if let Some((patch, secret)) = owner_patch.zip(live.as_ref()) {
        live = Some(patch_owner(patch, secret, scope).await?);
    }
    let applier = scope.applier();
    match step {
        Step::Keep { secret, claims } => {
            applier.apply(secret.as_ref(), live.as_ref()).await?;
            Ok(Some(claims))
        }
        Step::Issue(issue) => {
            let (secret, claims) = sign(*issue);
            applier.apply(&secret, live.as_ref()).await?;
            Ok(Some(claims))
        }
        Step::Delete(reason) => {
            if let Some(secret) = &live {
                info!(
                    secret = secret.name_any(),
                    ?reason,
                    "Deleting the immutable Secret to replace its token"
                );
                applier.delete_if_owned(secret, observed.token.as_ref()).await?;
            }
            // The deletion event enqueues the Token.
            Ok(None)
        }
    }
}

/// Signs a new token, which the plan cannot hold: its id is random.
fn sign(issue: Issue) -> (Secret, Claims) {
    let claims = Claims::new(&issue.desired.user, issue.issued_at, issue.desired.lifetime);
    let jwt = slurm_jwt::mint(&claims, &issue.signing_key);
    info!(secret = issue.secret.name_any(), reason = ?issue.reason, "Issuing a token");
    (Secret { data: Some(build_data(&issue.desired.key, jwt)), ..issue.secret }, claims)
}

async fn patch_owner(patch: Value, secret: &Secret, scope: &Scope) -> Result<Secret, apply::Error> {
    let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
    let secrets: Api<Secret> = Api::namespaced(scope.client(), &namespace);
    let patched = secrets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|source| apply::Error::Api {
        verb: "take over",
        object: format!("Secret {namespace}/{name}"),
        source,
    })
}
