//! Refuses to evict a worker pod that runs a job.
//!
//! The PodDisruptionBudget of the workers protects pods that are known to be busy. This hook asks Slurm, so that a job that
//! began a second ago is protected, too. When Slurm cannot be asked, the PodDisruptionBudget alone decides.

use crate::review::{Answer, Request, allow, allow_with_warning, deny};
use crate::slurm;
use axum::http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use operator_runtime::error::chain;
use slinky_api::v1beta1::NodeSet;
use slinky_api::workers::is_worker;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{info, warn};

/// Time limit of all requests for one eviction: less than the API server waits for the webhook.
const LIMIT: Duration = Duration::from_secs(8);

/// Whether a pod may be evicted.
#[derive(Debug, PartialEq, Eq)]
enum Eviction {
    /// It is no protected worker, or Slurm shows no job on it.
    Allowed,
    /// A job runs on it.
    Busy,
}

/// Why that is not known.
#[derive(Debug, thiserror::Error)]
enum EvictionError {
    #[error("the API server refused a request")]
    Api(#[from] kube::Error),
    #[error("Slurm cannot be asked")]
    Slurm(#[from] slurm::SlurmError),
    #[error("no answer within {} s", LIMIT.as_secs())]
    Timeout(#[from] tokio::time::error::Elapsed),
}

/// Decides on the eviction of a pod.
pub async fn evict(client: Client, request: Request) -> Answer {
    let (namespace, pod) = (request.namespace.clone().unwrap_or_default(), request.name.clone());
    let look = async { timeout(LIMIT, look(&client, &namespace, &pod)).await? };
    match look.await {
        Ok(Eviction::Allowed) => allow(&request),
        Ok(Eviction::Busy) => {
            info!(namespace, pod, "Eviction denied: a job runs on the worker");
            let message =
                format!("worker {pod} runs a job; its eviction is possible once its jobs have ended");
            // The same answer as that of a PodDisruptionBudget: `kubectl drain` tries again.
            deny(&request, StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        }
        Err(error) => {
            let error = chain(&error);
            warn!(
                namespace,
                pod, error, "Looking for jobs of a worker failed; its PodDisruptionBudget decides"
            );
            allow_with_warning(&request, format!("the jobs of worker {pod} are not known: {error}"))
        }
    }
}

async fn look(client: &Client, namespace: &str, name: &str) -> Result<Eviction, EvictionError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let Some(pod) = pods.get_opt(name).await? else { return Ok(Eviction::Allowed) };
    if !may_run_jobs(&pod) || !is_protected(client, namespace, &pod).await? {
        return Ok(Eviction::Allowed);
    }
    Ok(if slurm::is_busy(client, &pod).await? { Eviction::Busy } else { Eviction::Allowed })
}

/// Whether a pod is a worker that may run jobs: it has started and has not ended.
fn may_run_jobs(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    is_worker(pod) && is_running
}

/// Whether the NodeSet of a worker wants its jobs protected.
async fn is_protected(client: &Client, namespace: &str, pod: &Pod) -> Result<bool, kube::Error> {
    let Some(owner) = pod.owner_references().iter().find(|owner| owner.kind == "NodeSet") else {
        return Ok(true);
    };
    let nodesets: Api<NodeSet> = Api::namespaced(client.clone(), namespace);
    let nodeset = nodesets.get_opt(&owner.name).await?;
    Ok(nodeset.is_none_or(|nodeset| nodeset.spec.workload_disruption_protection))
}
