//! Makes pods and Slurm nodes say what was observed of each other. No decision hangs on it, so it needs no batch.

use super::grant::Final;
use super::report::{Deed, Failure, Report};
use super::slurm_writes;
use super::writes::{PARALLEL, exactly, patch_params, side_by_side};
use crate::plan::{NodeMirror, PodMirror};
use crate::slurm::Cluster;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch};
use kube::{Client, ResourceExt};
use operator_runtime::error::chain;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, warn};

/// How long Slurm nodes are told of their pods in one go; the rest is left to the next plan.
const NODE_TIME: Duration = Duration::from_secs(10);

/// Makes pods say what is known of their Slurm nodes; says which of them could not be told, and why. One that has changed
/// meanwhile is left to the next plan, which that change brings.
pub async fn mirror_pods(mirrors: &[PodMirror], client: &Client, namespace: &str) -> Vec<Failure> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let writes = mirrors.iter().map(|mirror| {
        let pods = &pods;
        async move { (mirror, mirror_pod(pods, mirror).await) }.boxed()
    });
    let results = side_by_side(PARALLEL, writes.collect()).await.into_iter();
    let failed = results.filter_map(|(mirror, result)| match result {
        Ok(()) => None,
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => None,
        Err(error) => Some(failure(format!("Pod {}", mirror.pod.name), &error)),
    });
    failed.collect()
}

async fn mirror_pod(pods: &Api<Pod>, mirror: &PodMirror) -> Result<(), kube::Error> {
    let PodMirror { pod, labels, annotations, conditions, ended } = mirror;
    let mut version = pod.version.clone();
    if !labels.is_empty() || !annotations.is_empty() {
        let patch = json!({ "labels": labels, "annotations": annotations });
        let patch = Patch::Merge(exactly(&pod.uid, &version, patch));
        let changed = pods.patch_metadata(&pod.name, &patch_params(), &patch).await?;
        version = changed.resource_version().unwrap_or_default();
    }
    if !conditions.is_empty() || !ended.is_empty() {
        let ended = ended.iter().map(|type_| json!({ "$patch": "delete", "type": type_ }));
        let conditions: Vec<Value> =
            conditions.iter().map(|condition| json!(condition)).chain(ended).collect();
        let mut patch = exactly(&pod.uid, &version, json!({}));
        patch["status"] = json!({ "conditions": conditions });
        pods.patch_status(&pod.name, &patch_params(), &Patch::Strategic(patch)).await?;
    }
    Ok(())
}

/// Makes Slurm nodes say what is known of their pods.
pub(super) async fn mirror_nodes(mirrors: &[NodeMirror], cluster: &Cluster, report: &mut Report) {
    let end = Instant::now() + NODE_TIME;
    let writes = mirrors.iter().map(|NodeMirror { node, update }| {
        async move {
            let is_in_time = Instant::now() < end;
            (node, if is_in_time { Some(cluster.update_nodes(&[node], update).await) } else { None })
        }
        .boxed()
    });
    for (node, result) in side_by_side(slurm_writes::PARALLEL, writes.collect()).await {
        match result {
            Some(Ok(())) => {
                debug!(node, "Told a Slurm node of its pod");
                report.did(Deed::Mirrored);
            }
            Some(Err(slurm_rest::Error::NotFound(_))) => {}
            Some(Err(error)) => {
                warn!(node, error = chain(&error), "A Slurm node could not be told of its pod");
                report.failures.push(failure(format!("Slurm node {node}"), &error));
            }
            None => report.leave(),
        }
    }
}

fn failure<E: Final>(object: String, error: &E) -> Failure {
    Failure { object, category: error.category(), message: chain(error) }
}
