//! Reads what a Token depends on.

use crate::validate::Wish;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

/// The Secrets of a Token.
#[derive(Debug, Default)]
pub struct Observed {
    /// The Secret with the signing key.
    pub signing: Option<Secret>,
    /// The Secret with the token.
    pub secret: Option<Secret>,
}

/// Reads the Secrets by name; no Secret is kept.
pub async fn observe(wish: &Wish, namespace: &str, client: Client) -> Result<Observed, kube::Error> {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    Ok(Observed {
        signing: secrets.get_opt(&wish.signing_key.name).await?,
        secret: secrets.get_opt(&wish.secret).await?,
    })
}
