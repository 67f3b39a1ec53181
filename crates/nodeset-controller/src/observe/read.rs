//! Reads [`Observed`]: from caches in a reconcile, live where the cache may lack results of earlier batches.

use super::queries::slurm_queries;
use super::{Observed, Sources};
use crate::build::revision_name;
use crate::cache::concerns;
use crate::slurm::{ClusterKey, Queries, View};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};
use operator_runtime::find;
use operator_runtime::references::{ReferenceError, resolve_key};
use pod_builder::hash_bytes;
use slinky_api::labels::selector_labels;
use slinky_api::names::{controller as names, ssh_config};
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything from caches.
pub async fn observe(nodeset: &Arc<NodeSet>, sources: &Sources) -> Observed {
    let namespace = nodeset.namespace().unwrap_or_default();
    let pods = sources.pods.of(&namespace, &nodeset.name_any());
    let slurm = sources.clusters.view(&ClusterKey::of(nodeset), queries(nodeset, sources));
    observed(nodeset, pods, slurm, sources).await
}

/// Reads the NodeSet, its pods and its Slurm nodes live, each by a request that starts after this call; `None` if the
/// NodeSet is deleted.
pub async fn observe_live(
    nodeset: &NodeSet,
    sources: &Sources,
) -> Result<Option<Observed>, Arc<kube::Error>> {
    let (namespace, name) = (nodeset.namespace().unwrap_or_default(), nodeset.name_any());
    let nodesets: Api<NodeSet> = Api::namespaced(sources.client.clone(), &namespace);
    let pods = sources.live_pods.list(&namespace);
    let cluster = sources.clusters.cluster(&ClusterKey::of(nodeset));
    let slurm = async {
        match cluster {
            Some(cluster) => cluster.list_nodes_live().await,
            None => sources.clusters.view(&ClusterKey::of(nodeset), queries(nodeset, sources)),
        }
    };
    let (found, pods, slurm) = tokio::join!(nodesets.get_opt(&name), pods, slurm);
    let Some(found) = found.map_err(Arc::new)?.filter(|found| found.uid() == nodeset.uid()) else {
        return Ok(None);
    };
    let pods = pods?.iter().filter(|pod| concerns(pod, &name)).cloned().collect();
    Ok(Some(observed(&Arc::new(found), pods, slurm, sources).await))
}

fn queries(nodeset: &NodeSet, sources: &Sources) -> Queries {
    let namespace = nodeset.namespace().unwrap_or_default();
    let controller = find(&sources.controllers, &namespace, &nodeset.spec.controller_ref.name);
    slurm_queries(nodeset, controller.as_deref())
}

async fn observed(nodeset: &Arc<NodeSet>, pods: Vec<Arc<Pod>>, slurm: View, sources: &Sources) -> Observed {
    let namespace = nodeset.namespace().unwrap_or_default();
    let controller = &nodeset.spec.controller_ref.name;
    let (retry_times, retry_delays) = sources.pod_backoff.with(nodeset.as_ref(), |backoff| {
        backoff.restore(pods.iter().map(Arc::as_ref));
        (backoff.retry_times(), backoff.retry_delays())
    });
    Observed {
        controller: find(&sources.controllers, &namespace, controller),
        siblings: siblings(nodeset, sources),
        pods,
        revisions: revisions(nodeset, sources),
        claims: claims(nodeset, sources),
        service: find(&sources.services, &namespace, &names::workers_service(controller)),
        pdb: find(&sources.pdbs, &namespace, &names::workers_budget(controller)),
        ssh_config: find(&sources.ssh_configs, &namespace, &ssh_config(&nodeset.name_any())),
        nodes: sources.nodes.all(),
        slurm,
        unreachable_for: sources.clusters.unreachable_for(&ClusterKey::of(nodeset)),
        sssd_conf: sssd_conf(nodeset, sources).await.map_err(Arc::new),
        cluster_domain: sources.cluster_domain.clone(),
        propagated_conditions: sources.propagated_conditions.clone(),
        retry_times,
        retry_delays,
        nodeset: nodeset.clone(),
    }
}

/// All NodeSets of the same cluster. One that is being deleted is among them, as its workers still exist.
fn siblings(nodeset: &Arc<NodeSet>, sources: &Sources) -> Vec<Arc<NodeSet>> {
    let key = ClusterKey::of(nodeset);
    let all = sources.nodesets.state();
    let mut siblings: Vec<_> = all.into_iter().filter(|other| ClusterKey::of(other) == key).collect();
    if !siblings.iter().any(|other| other.uid() == nodeset.uid()) {
        siblings.push(nodeset.clone());
    }
    siblings.sort_by_key(|sibling| sibling.name_any());
    siblings
}

fn revisions(nodeset: &NodeSet, sources: &Sources) -> Vec<Arc<ControllerRevision>> {
    let labels = selector_labels(nodeset);
    let beginning = revision_name(nodeset, "");
    let mut ours = sources.revisions.of(&nodeset.namespace().unwrap_or_default(), &nodeset.name_any());
    ours.retain(|revision| {
        let labelled = || labels.iter().all(|(key, value)| revision.labels().get(key) == Some(value));
        let named = revision.name_any().starts_with(&beginning);
        match control_of(&revision.metadata, nodeset) {
            Control::Ours => true,
            Control::Orphan => named || labelled(),
            Control::Foreign(_) => named,
        }
    });
    ours
}

fn claims(nodeset: &NodeSet, sources: &Sources) -> BTreeMap<String, Arc<PersistentVolumeClaim>> {
    if nodeset.spec.volume_claim_templates.is_absent() {
        return BTreeMap::new();
    }
    let labels = selector_labels(nodeset);
    let mut claims = sources.claims.of(&nodeset.namespace().unwrap_or_default(), &nodeset.name_any());
    claims.retain(|claim| labels.iter().all(|(key, value)| claim.labels().get(key) == Some(value)));
    claims.into_iter().map(|claim| (claim.name_any(), claim)).collect()
}

/// Hash of the sssd.conf of workers; that of an empty file without ssh.
async fn sssd_conf(nodeset: &NodeSet, sources: &Sources) -> Result<String, ReferenceError> {
    let Some(ssh) = nodeset.spec.enabled_ssh() else { return Ok(hash_bytes(&[])) };
    let namespace = nodeset.namespace().unwrap_or_default();
    let (client, selector) = (sources.client.clone(), &ssh.sssd_conf_ref);
    let read = async {
        let found = resolve_key(client, &namespace, "spec.ssh.sssdConfRef", Some(selector)).await?;
        Ok(hash_bytes(&found.value.0))
    };
    sources.secret_hashes.get(&namespace, selector, read).await
}

#[cfg(test)]
mod tests;
