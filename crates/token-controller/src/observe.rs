//! Reads the Secrets of a Token by name. No Secret is cached.

use crate::validate::{DesiredToken, InvalidToken, validate};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt};
use operator_runtime::get_secret;
use operator_runtime::references::ReferenceError;
use slinky_api::names::check_object_name;
use slinky_api::v1beta1::Token;
use std::sync::Arc;

/// Everything that a decision about a Token depends on, besides the time.
pub struct Observed {
    /// The Token.
    pub token: Arc<Token>,
    /// The validated spec. The signing key is not read if it is invalid.
    pub desired: Result<DesiredToken, Arc<InvalidToken>>,
    /// The Secret with the signing key.
    pub signing_secret: SecretRead,
    /// The Secret with the token.
    pub secret: SecretRead,
}

/// The result of reading a Secret.
pub type SecretRead = Result<Option<Secret>, Arc<ReferenceError>>;

/// Reads the state of one Token.
pub async fn observe(token: Arc<Token>, client: &Client) -> Observed {
    let namespace = token.namespace().unwrap_or_default();
    let desired = validate(&token).map_err(Arc::new);
    let signing_secret = match &desired {
        Ok(desired) => get_secret(client.clone(), &namespace, &desired.signing_key.name).await,
        Err(_) => Ok(None),
    };
    // Even with an invalid spec: the token that the Secret holds still expires.
    let name = token.secret_name();
    let secret = match check_object_name(&name) {
        Ok(()) => get_secret(client.clone(), &namespace, &name).await,
        Err(_) => Ok(None),
    };
    Observed { token, desired, signing_secret, secret }
}
