//! Watches Tokens and the Secrets they depend on, and reconciles one Token at a time.

use crate::execute::{Hands, Outcome, execute};
use crate::observe::observe;
use crate::plan::plan;
use crate::status::status;
use crate::validate::{Invalid, Wish, validate};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use operator_runtime::apply;
use operator_runtime::{Class, Classify, MissingReference, Runtime, Scope, referrers, secret_value};
use slinky_api::v1beta1::Token;
use slurm_jwt::{JwtError, SigningKey};
use std::sync::Arc;
use std::time::Duration;
use tracing::instrument;

/// How long to wait for another key, or for the end of another's Secret; both are noticed at once.
const UNTIL_NEXT_LOOK: Duration = Duration::from_mins(5);

/// Why a Token is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec makes no sense.
    #[error("the spec cannot be acted on")]
    Invalid(#[from] Invalid),
    /// The signing key is not there.
    #[error("the signing key is missing")]
    NoSigningKey(#[from] MissingReference),
    /// The signing key cannot be one.
    #[error("the signing key cannot be used")]
    UnusableKey(#[from] JwtError),
    /// The Secret is somebody else's.
    #[error("Secret {0} belongs to somebody else or holds other data: left alone")]
    Occupied(String),
    /// A write that did not happen.
    #[error("the Secret could not be written")]
    Write(#[from] apply::Error),
    /// A read that did not happen.
    #[error("the API server did not answer as expected")]
    Api(#[from] kube::Error),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Invalid(_) => Class::Invalid,
            Self::NoSigningKey(missing) => missing.class(),
            Self::UnusableKey(_) | Self::Occupied(_) => Class::Waiting(UNTIL_NEXT_LOOK),
            Self::Write(error) => error.class(),
            Self::Api(error) => error.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "InvalidSpec",
            Self::NoSigningKey(_) => "SigningKeyMissing",
            Self::UnusableKey(_) => "SigningKeyUnusable",
            Self::Occupied(_) => "SecretOccupied",
            Self::Write(error) => error.category(),
            Self::Api(error) => error.category(),
        }
    }
}

/// Starts the controller in every namespace that is watched.
pub async fn start(runtime: Runtime) -> anyhow::Result<()> {
    runtime
        .for_each_scope(|scope| async move {
            let controller = scope.controller::<Token>(watcher::Config::default());
            let tokens = controller.store();
            let secrets = scope.changes::<Secret>(watcher::Config::default());
            let controller =
                controller.watches_stream(secrets, move |secret| referrers(&tokens, &secret, depends_on));
            scope.run_controller(controller, reconcile, Arc::new(scope.clone())).await;
            Ok(())
        })
        .await
}

/// Whether a Token is signed with a key in this Secret, or is kept in it.
fn depends_on(token: &Token, secret: &str) -> bool {
    token.secret_name() == secret || token.spec.signing_key_ref().is_some_and(|key| key.name == secret)
}

#[instrument(skip_all, fields(namespace = token.namespace(), name = token.name_any()))]
async fn reconcile(token: Arc<Token>, scope: Arc<Scope>) -> Result<Action, Error> {
    if token.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    #[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
    let now = Timestamp::now();
    let outcome = converge(&token, &scope, now).await;
    scope.applier().apply_status(token.as_ref(), &status(&token, &outcome, now)).await?;
    Ok(match outcome?.again {
        Some(wait) => Action::requeue(wait.unsigned_abs()),
        None => Action::await_change(),
    })
}

async fn converge(token: &Token, scope: &Scope, now: Timestamp) -> Result<Outcome, Error> {
    let wish = validate(token)?;
    let observed = observe(&wish, &token.namespace().unwrap_or_default(), scope.client()).await?;
    let key = signing_key(&wish, observed.signing.as_ref())?;
    let plan = plan(&wish, &key, &observed, now);
    execute(plan, token, &wish, &key, &observed, Hands { scope, now }).await
}

fn signing_key(wish: &Wish, secret: Option<&Secret>) -> Result<SigningKey, Error> {
    Ok(SigningKey::new(secret_value(secret, &wish.signing_key.name, &wish.signing_key.key)?)?)
}
