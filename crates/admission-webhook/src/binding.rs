//! Gives a worker pod the topology of its Kubernetes node when it is bound, before its containers start: slurmd reads it once.
//!
//! The nodeset-controller keeps the annotation up to date later, so this hook never holds up scheduling: whatever fails here
//! is a warning.

use crate::NAME;
use crate::review::{Answer, Request, allow, allow_with_warning};
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use operator_runtime::error::chain;
use serde_json::json;
use slinky_api::labels::annotations::TOPOLOGY;
use slinky_api::v1beta1::NodeSet;
use slinky_api::workers::is_worker;
use std::time::Duration;
use tokio::time::timeout;
use tracing::warn;

/// Time limit of all requests for one binding.
const LIMIT: Duration = Duration::from_secs(5);

/// Why the topology was not set.
#[derive(Debug, thiserror::Error)]
enum BindingError {
    #[error("the Binding cannot be read")]
    Unreadable(#[from] kube::core::dynamic::ParseDynamicObjectError),
    #[error("the API server refused a request")]
    Api(#[from] kube::Error),
    #[error("the API server did not answer within {} s", LIMIT.as_secs())]
    Timeout(#[from] tokio::time::error::Elapsed),
}

/// Sets the topology of the pod of a Binding, and allows the Binding.
pub async fn bind(client: Client, request: Request) -> Answer {
    if request.dry_run {
        return allow(&request);
    }
    let set = async { timeout(LIMIT, set_topology(&client, &request)).await? };
    match set.await {
        Ok(()) => allow(&request),
        Err(error) => {
            let error = chain(&error);
            warn!(
                namespace = request.namespace,
                pod = request.name,
                error,
                "Setting the topology of a pod failed"
            );
            allow_with_warning(&request, format!("the topology of the pod is set later: {error}"))
        }
    }
}

async fn set_topology(client: &Client, request: &Request) -> Result<(), BindingError> {
    let Some(binding) = request.object.clone() else { return Ok(()) };
    let binding: Binding = binding.try_parse()?;
    let (Some(name), Some(node)) = (binding.metadata.name, binding.target.name) else { return Ok(()) };
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let Some(pod) = pods.get_metadata_opt(&name).await? else { return Ok(()) };
    if !is_worker(&pod) || !syncs_topology(client, namespace, &pod).await? {
        return Ok(());
    }
    let Some(node) = Api::<Node>::all(client.clone()).get_metadata_opt(&node).await? else { return Ok(()) };
    let topology = node.annotations().get(TOPOLOGY).cloned().unwrap_or_default();
    if pod.annotations().get(TOPOLOGY) == Some(&topology) {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { TOPOLOGY: topology } } }));
    let params = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
    match pods.patch_metadata(&name, &params, &patch).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

/// Whether the NodeSet of a pod has its topology follow the Kubernetes node.
async fn syncs_topology(
    client: &Client,
    namespace: &str,
    pod: &PartialObjectMeta<Pod>,
) -> Result<bool, kube::Error> {
    let Some(owner) = pod.owner_references().iter().find(|owner| owner.kind == "NodeSet") else {
        return Ok(false);
    };
    let nodesets: Api<NodeSet> = Api::namespaced(client.clone(), namespace);
    Ok(nodesets.get_opt(&owner.name).await?.is_some_and(|nodeset| nodeset.spec.sync_topology))
}
