//! Reads what decisions depend on: ordinarily from caches; live where a cache is not known to show everything that was
//! done before.

use super::Observed;
use super::queries::slurm_queries;
use crate::build::revision_name;
use crate::cache::concerns;
use crate::slurm::{ClusterKey, Queries, View};
use crate::world::World;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};
use operator_runtime::find;
use operator_runtime::references::{ReferenceError, resolve_key};
use pod_builder::hash_bytes;
use slinky_api::labels::selector_labels;
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything from caches.
pub async fn observe(nodeset: &Arc<NodeSet>, world: &World) -> Observed {
    let namespace = nodeset.namespace().unwrap_or_default();
    let pods = world.pods.of(&namespace, &nodeset.name_any());
    let slurm = world.clusters.view(&ClusterKey::of(nodeset), queries(nodeset, world));
    observed(nodeset, pods, slurm, world).await
}

/// Reads the NodeSet, its pods and its Slurm nodes live, all after this call; `None` if the NodeSet is gone.
pub async fn observe_live(nodeset: &NodeSet, world: &World) -> Result<Option<Observed>, Arc<kube::Error>> {
    let (namespace, name) = (nodeset.namespace().unwrap_or_default(), nodeset.name_any());
    let nodesets: Api<NodeSet> = Api::namespaced(world.client.clone(), &namespace);
    let pods = world.fresh_pods.list(&namespace);
    let cluster = world.clusters.cluster(&ClusterKey::of(nodeset));
    let look = async {
        match cluster {
            Some(cluster) => cluster.look().await,
            None => world.clusters.view(&ClusterKey::of(nodeset), queries(nodeset, world)),
        }
    };
    let (found, pods, slurm) = tokio::join!(nodesets.get_opt(&name), pods, look);
    let Some(found) = found.map_err(Arc::new)?.filter(|found| found.uid() == nodeset.uid()) else {
        return Ok(None);
    };
    let concerned = pods?.iter().filter(|pod| concerns(pod, &name)).cloned().collect();
    Ok(Some(observed(&Arc::new(found), concerned, slurm, world).await))
}

fn queries(nodeset: &NodeSet, world: &World) -> Queries {
    let namespace = nodeset.namespace().unwrap_or_default();
    let controller = find(&world.controllers, &namespace, &nodeset.spec.controller_ref.name);
    slurm_queries(nodeset, controller.as_deref())
}

async fn observed(nodeset: &Arc<NodeSet>, pods: Vec<Arc<Pod>>, slurm: View, world: &World) -> Observed {
    let namespace = nodeset.namespace().unwrap_or_default();
    let controller = &nodeset.spec.controller_ref.name;
    Observed {
        controller: find(&world.controllers, &namespace, controller),
        siblings: siblings(nodeset, world),
        pods,
        revisions: revisions(nodeset, world),
        claims: claims(nodeset, world),
        nodes: world.nodes.all(),
        slurm,
        unreachable_for: world.clusters.unreachable_for(&ClusterKey::of(nodeset)),
        sssd_conf: sssd_conf(nodeset, world).await.map_err(Arc::new),
        cluster_domain: world.cluster_domain.clone(),
        propagated_conditions: world.propagated_conditions.clone(),
        retry_times: world.memory.with(nodeset.as_ref(), |memory| memory.pod_backoff.retry_times()),
        nodeset: nodeset.clone(),
    }
}

/// All NodeSets of the same cluster. One that is being deleted is among them until it is gone: so are its workers.
fn siblings(nodeset: &Arc<NodeSet>, world: &World) -> Vec<Arc<NodeSet>> {
    let key = ClusterKey::of(nodeset);
    let all = world.nodesets.state();
    let mut siblings: Vec<_> = all.into_iter().filter(|other| ClusterKey::of(other) == key).collect();
    if !siblings.iter().any(|other| other.uid() == nodeset.uid()) {
        siblings.push(nodeset.clone());
    }
    siblings.sort_by_key(|sibling| sibling.name_any());
    siblings
}

fn revisions(nodeset: &NodeSet, world: &World) -> Vec<Arc<ControllerRevision>> {
    let (namespace, labels) = (nodeset.namespace(), selector_labels(nodeset));
    let beginning = revision_name(nodeset, "");
    let mut ours = world.revisions.state();
    ours.retain(|revision| {
        let labelled = || labels.iter().all(|(key, value)| revision.labels().get(key) == Some(value));
        let named = revision.name_any().starts_with(&beginning);
        revision.namespace() == namespace
            && match control_of(&revision.metadata, nodeset) {
                Control::Ours => true,
                Control::Orphan => named || labelled(),
                Control::Foreign(_) => named,
            }
    });
    ours.sort_by_key(|revision| revision.name_any());
    ours
}

fn claims(nodeset: &NodeSet, world: &World) -> BTreeMap<String, Arc<PersistentVolumeClaim>> {
    if nodeset.spec.volume_claim_templates.is_absent() {
        return BTreeMap::new();
    }
    let (namespace, labels) = (nodeset.namespace(), selector_labels(nodeset));
    let mut claims = world.claims.state();
    claims.retain(|claim| {
        claim.namespace() == namespace
            && labels.iter().all(|(key, value)| claim.labels().get(key) == Some(value))
    });
    claims.into_iter().map(|claim| (claim.name_any(), claim)).collect()
}

/// The hash of sssd.conf; that of nothing where there is no ssh.
async fn sssd_conf(nodeset: &NodeSet, world: &World) -> Result<String, ReferenceError> {
    let Some(ssh) = nodeset.spec.enabled_ssh() else { return Ok(hash_bytes(&[])) };
    let namespace = nodeset.namespace().unwrap_or_default();
    let (client, selector) = (world.client.clone(), &ssh.sssd_conf_ref);
    let read = async {
        let found = resolve_key(client, &namespace, "spec.ssh.sssdConfRef", Some(selector)).await?;
        Ok(hash_bytes(&found.value.0))
    };
    world.secret_hashes.get(&namespace, selector, read).await
}

#[cfg(test)]
mod tests;
