//! Asks a Slurm cluster for the jobs of a node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use operator_runtime::references::{ReferenceError, resolve_key};
use slinky_api::labels::CLUSTER;
use slinky_api::v1beta1::{Controller, RestApi};
use slinky_api::workers::{slurm_node_name, slurmrestd_url};
use slurm_jwt::{JwtError, SigningKey};
use slurm_rest::{EndpointError, HttpTransport, Limits, SlurmClient, TokenSource};
use std::sync::Arc;
use std::time::Duration;

/// The Slurm user of the webhook's tokens.
const USER: &str = "slurm";
/// Limits of requests to slurmrestd.
const LIMITS: Limits = Limits { in_flight: 1, timeout: Duration::from_secs(4) };

/// Why Slurm could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    #[error("the pod has no label {CLUSTER}")]
    NoCluster,
    #[error("Controller {0} has no RestApi")]
    NoRestApi(String),
    #[error("the API server refused a request")]
    Api(#[from] kube::Error),
    #[error("the signing key cannot be read")]
    Reference(#[from] ReferenceError),
    #[error("the signing key cannot be used")]
    Key(#[from] JwtError),
    #[error("the address of slurmrestd cannot be used")]
    Endpoint(#[from] EndpointError),
    #[error("slurmrestd did not answer")]
    Slurm(#[from] slurm_rest::Error),
}

/// Whether a job holds the Slurm node of a worker, by a list of nodes that was read just now: it shows suspended jobs, too. A
/// worker that has no node in Slurm runs no jobs.
pub async fn is_busy(client: &Client, pod: &Pod) -> Result<bool, SlurmError> {
    let namespace = pod.namespace().unwrap_or_default();
    let name = pod.labels().get(CLUSTER).ok_or(SlurmError::NoCluster)?;
    let controllers: Api<Controller> = Api::namespaced(client.clone(), &namespace);
    let controller = controllers.get(name).await?;
    let restapis: Api<RestApi> = Api::namespaced(client.clone(), &namespace);
    let restapis = restapis.list(&ListParams::default()).await?;
    let url =
        slurmrestd_url(&namespace, name, &restapis).ok_or_else(|| SlurmError::NoRestApi(name.clone()))?;
    let selector = controller.spec.signing_key_ref();
    let key = resolve_key(client.clone(), &namespace, "spec.jwtKeyRef", selector).await?;
    let tokens = TokenSource::new(USER, SigningKey::new(&key.value.0)?, Arc::new(now));
    let slurm = SlurmClient::new(HttpTransport::new(&url, None)?, tokens, LIMITS);
    let node = slurm_node_name(pod);
    Ok(slurm.list_nodes().await?.nodes.iter().any(|found| found.name == node && found.is_busy()))
}

#[expect(clippy::disallowed_methods, reason = "the validity of tokens is in wall-clock time")]
fn now() -> Timestamp {
    Timestamp::now()
}
