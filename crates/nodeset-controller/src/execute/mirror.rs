//! Mirrors Slurm node state to pods, and pod facts to Slurm nodes. Mirrors repeat what was observed, so they need no batch.

use super::grant::MaybeFinal;
use super::report::{Failure, Report, WriteKind};
use super::writes::{CONCURRENT_WRITES, concurrently, patch_params, with_preconditions};
use crate::plan::{NodeMirror, PodMirror};
use crate::slurm::{CONCURRENT_SLURM_WRITES, Cluster};
use crate::timing::{NODE_MIRROR_TIME, POD_MIRROR_TIME};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch};
use kube::{Client, ResourceExt};
use operator_runtime::error::chain;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, warn};

/// Patches labels, annotations and conditions of pods for [`POD_MIRROR_TIME`]; returns the failures. A conflict is no failure:
/// the change of the pod brings the next plan.
pub async fn mirror_pods(mirrors: &[PodMirror], client: &Client, namespace: &str) -> Vec<Failure> {
    let end = Instant::now() + POD_MIRROR_TIME;
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let writes = mirrors.iter().map(|mirror| {
        let pods = &pods;
        async move {
            let is_in_time = Instant::now() < end;
            (mirror, if is_in_time { mirror_pod(pods, mirror).await } else { Ok(()) })
        }
        .boxed()
    });
    let results = concurrently(CONCURRENT_WRITES, writes).await.into_iter();
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
        let patch = Patch::Merge(with_preconditions(&pod.uid, &version, patch));
        let changed = pods.patch_metadata(&pod.name, &patch_params(), &patch).await?;
        version = changed.resource_version().unwrap_or_default();
    }
    if !conditions.is_empty() || !ended.is_empty() {
        let ended = ended.iter().map(|type_| json!({ "$patch": "delete", "type": type_ }));
        let conditions: Vec<Value> =
            conditions.iter().map(|condition| json!(condition)).chain(ended).collect();
        let mut patch = with_preconditions(&pod.uid, &version, json!({}));
        patch["status"] = json!({ "conditions": conditions });
        pods.patch_status(&pod.name, &patch_params(), &Patch::Strategic(patch)).await?;
    }
    Ok(())
}

/// Writes pod facts (comment, features, topology) to Slurm nodes.
pub(super) async fn mirror_nodes(mirrors: &[NodeMirror], cluster: &Cluster, report: &mut Report) {
    let end = Instant::now() + NODE_MIRROR_TIME;
    let writes = mirrors.iter().map(|mirror| {
        async move {
            let NodeMirror { node, update } = mirror;
            let is_in_time = Instant::now() < end;
            (mirror, if is_in_time { Some(cluster.update_nodes(&[node], update).await) } else { None })
        }
        .boxed()
    });
    for (mirror, result) in concurrently(CONCURRENT_SLURM_WRITES, writes).await {
        let node = &mirror.node;
        match result {
            Some(Ok(())) => {
                debug!(node, "Pod facts written to Slurm node");
                report.record(WriteKind::NodeMirrored);
            }
            Some(Err(slurm_rest::Error::NotFound(_))) => {}
            Some(Err(error)) => {
                warn!(node, error = chain(&error), "Writing pod facts to Slurm node failed");
                let failure = failure(format!("Slurm node {node}"), &error);
                if error.is_refusal() {
                    let message = format!("{}: {}", failure.object, failure.message);
                    report.refuse(mirror_name(mirror), failure.category, message);
                }
                report.failures.push(failure);
            }
            None => report.requeue_soon(),
        }
    }
}

/// The name under which a mirror is refused. Another value may be accepted.
pub fn mirror_name(NodeMirror { node, update }: &NodeMirror) -> String {
    format!("{update:?} of Slurm node {node}")
}

fn failure<E: MaybeFinal>(object: String, error: &E) -> Failure {
    Failure { object, category: error.category(), message: chain(error) }
}
