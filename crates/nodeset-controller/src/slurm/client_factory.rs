//! Access to slurmrestd and to the signing key. Tests replace it.

use futures::future::BoxFuture;
use kube::{Client, ResourceExt};
use operator_runtime::references::{ReferenceError, resolve_key};
use slinky_api::v1beta1::Controller;
use slurm_jwt::{JwtError, SigningKey};
use slurm_rest::{Clock, EndpointError, HttpTransport, Limits, SlurmClient, TokenSource};

/// The Slurm user of the operator's tokens: `SlurmUser`, which has all privileges.
pub const USER: &str = "slurm";

/// Why the signing key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The Secret or its key does not exist, or cannot be read.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The value is not a valid key.
    #[error("the signing key is not usable")]
    Key(#[from] JwtError),
    /// The API server did not answer in time.
    #[error("reading the signing key from the Kubernetes API timed out")]
    Timeout,
}

/// Creates clients of a slurmrestd.
pub trait ClientFactory: Send + Sync + 'static {
    /// The key that signs tokens for the cluster of this Controller.
    fn signing_key<'a>(&'a self, controller: &'a Controller) -> BoxFuture<'a, Result<SigningKey, KeyError>>;

    /// A client of the slurmrestd at `url`.
    fn client(&self, url: &str, key: SigningKey, limits: Limits) -> Result<SlurmClient, EndpointError>;
}

/// Over HTTP, with the key from the Secret that the Controller refers to.
pub struct HttpClientFactory {
    /// Reads the Secret.
    pub client: Client,
    /// For the times in tokens.
    pub clock: Clock,
}

impl ClientFactory for HttpClientFactory {
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
