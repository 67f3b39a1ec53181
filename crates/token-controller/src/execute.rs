//! Puts a plan into effect.

use crate::build::build_secret;
use crate::plan::{Claim, Plan, claim, wait};
use crate::validate::Wish;
use crate::{controller::Error, observe::Observed};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use operator_runtime::Scope;
use serde_json::json;
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::Token;
use slurm_jwt::{Claims, SigningKey};
use tracing::info;

/// What became of a plan.
#[derive(Debug)]
pub struct Outcome {
    /// The claims of the token that the Secret holds now; `None` while the old Secret is on its way out.
    pub claims: Option<Claims>,
    /// When to look again; `None` if only a change can matter.
    pub again: Option<SignedDuration>,
}

/// What a plan is performed with.
pub struct Hands<'a> {
    /// The clients.
    pub scope: &'a Scope,
    /// The time of this pass.
    pub now: Timestamp,
}

/// Performs a plan for one Token.
pub async fn execute(
    plan: Plan,
    token: &Token,
    wish: &Wish,
    key: &SigningKey,
    observed: &Observed,
    hands: Hands<'_>,
) -> Result<Outcome, Error> {
    let live = match &observed.secret {
        Some(secret) => Some(own(token, wish, secret, observed, hands.scope.client()).await?),
        None => None,
    };
    let applier = hands.scope.applier();
    match plan {
        Plan::Keep { jwt, claims } => {
            applier.apply(&build_secret(token, wish, jwt), live.as_ref()).await?;
            Ok(Outcome { again: wait(&claims, wish, hands.now), claims: Some(claims) })
        }
        Plan::Issue(reason) => {
            let claims = Claims::new(&wish.user, hands.now, wish.lifetime);
            let jwt = slurm_jwt::mint(&claims, key);
            info!(secret = wish.secret, ?reason, "Issuing a token");
            applier.apply(&build_secret(token, wish, jwt), live.as_ref()).await?;
            Ok(Outcome { again: wait(&claims, wish, hands.now), claims: Some(claims) })
        }
        Plan::Remove(reason) => {
            info!(secret = wish.secret, ?reason, "Removing an immutable Secret, to issue a token anew");
            if let Some(secret) = &live {
                applier.delete_if_owned(secret, token).await?;
            }
            // Its end wakes us.
            Ok(Outcome { claims: None, again: None })
        }
    }
}

/// The Secret with the Token as its controller.
///
/// The operator that we may replace made the signing key's Secret the controller, so that a deleted Token left a
/// valid credential behind.
async fn own(
    token: &Token,
    wish: &Wish,
    secret: &Secret,
    observed: &Observed,
    client: Client,
) -> Result<Secret, Error> {
    match claim(token, wish, secret, observed.signing.as_ref()) {
        Claim::Ours => Ok(secret.clone()),
        Claim::Refused => Err(Error::Occupied(wish.secret.clone())),
        Claim::Inherited => {
            let owners = controller_reference(token).map(|owner| vec![owner]);
            let metadata = json!({
                "resourceVersion": secret.resource_version(),
                "uid": secret.uid(),
                "ownerReferences": owners,
            });
            let secrets: Api<Secret> = Api::namespaced(client, &token.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            Ok(secrets.patch(&wish.secret, &PatchParams::default(), &patch).await?)
        }
    }
}
