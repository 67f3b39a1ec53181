//! The seam between what is decided about a cluster and how it is reached.

use futures::future::BoxFuture;
use kube::{Client, ResourceExt};
use operator_runtime::references::{ReferenceError, resolve_key};
use slinky_api::v1beta1::Controller;
use slurm_jwt::{JwtError, SigningKey};
use slurm_rest::{Clock, EndpointError, HttpTransport, Limits, SlurmClient, TokenSource};

/// The Slurm user in whose name the operator speaks: the one that may do everything.
pub const USER: &str = "slurm";

/// Why there is no signing key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The reference leads to nothing.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// What is there is no key.
    #[error("the signing key is not usable")]
    Key(#[from] JwtError),
    /// The API server does not answer.
    #[error("the Kubernetes API does not tell the signing key in time")]
    Slow,
}

/// The way to a slurmrestd.
pub trait Connect: Send + Sync + 'static {
    /// The key with which tokens for the cluster of this Controller are signed.
    fn signing_key<'a>(&'a self, controller: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>>;

    /// A client of the slurmrestd at `url`.
    fn client(&self, url: &str, key: SigningKey, limits: Limits) -> Result<SlurmClient, EndpointError>;
}

/// By HTTP, with the key from the Secret that the Controller names.
pub struct Direct {
    /// Reads the Secret.
    pub client: Client,
    /// For the times in tokens.
    pub clock: Clock,
}

impl Connect for Direct {
    fn signing_key<'a>(&'a self, controller: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>> {
        Box::pin(async move {
            let namespace = controller.namespace().unwrap_or_default();
            let selector = controller.spec.signing_key_ref();
            let found = resolve_key(self.client.clone(), &namespace, "spec.jwtKeyRef", selector).await?;
            Ok(SigningKey::new(&found.value.0)?)
        })
    }

    fn client(&self, url: &str, key: SigningKey, limits: Limits) -> Result<SlurmClient, EndpointError> {
        let tokens = TokenSource::new(USER, key, self.clock.clone());
        Ok(SlurmClient::new(HttpTransport::new(url, None)?, tokens, limits))
    }
}
