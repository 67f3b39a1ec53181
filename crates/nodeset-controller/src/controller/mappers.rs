//! Which NodeSets are concerned when something changes.

use crate::cache::{NodeCache, PodCache, SecretHashes, nodesets_of};
use crate::slurm::{ClusterKey, Clusters};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use operator_runtime::{changed_by, find};
use slinky_api::labels::APP_INSTANCE;
use slinky_api::v1beta1::{Controller, NodeSet, RestApi, ScalingMode};

/// A NodeSet by name.
type Concerned = ObjectRef<NodeSet>;

fn named(namespace: Option<String>, name: &str) -> Concerned {
    ObjectRef::new(name).within(&namespace.unwrap_or_default())
}

/// The NodeSet that a pod is part of, and the one that it claims to be part of.
pub fn of_pod(pod: &Pod) -> Vec<Concerned> {
    nodesets_of(pod).iter().map(|name| named(pod.namespace(), name)).collect()
}

/// The NodeSet that an object says to be part of.
pub fn of_label<K: Resource<DynamicType = ()>>(object: &K) -> Option<Concerned> {
    object.labels().get(APP_INSTANCE).map(|name| named(object.namespace(), name))
}

/// All NodeSets that own an object together.
pub fn of_owners<K: Resource<DynamicType = ()>>(object: &K) -> Vec<Concerned> {
    let kind = NodeSet::kind(&());
    let owners = object.owner_references().iter().filter(|owner| owner.kind == kind);
    owners.map(|owner| named(object.namespace(), &owner.name)).collect()
}

/// Kubernetes nodes that changed in a way that matters. The cache of facts learns of it first.
pub fn node_changes(
    changes: BoxStream<'static, watcher::Result<Node>>,
    store: Store<Node>,
    nodes: NodeCache,
) -> BoxStream<'static, watcher::Result<Node>> {
    let reader = nodes.clone();
    changed_by(changes, store, move |node| reader.facts(node)).inspect_ok(move |_| nodes.invalidate()).boxed()
}

/// Secrets that changed. The cache of their hashes learns of it first.
pub fn secret_changes(
    events: BoxStream<'static, watcher::Result<watcher::Event<PartialObjectMeta<Secret>>>>,
    hashes: SecretHashes,
) -> BoxStream<'static, watcher::Result<PartialObjectMeta<Secret>>> {
    events.inspect_ok(move |event| hashes.observe(event)).touched_objects().boxed()
}

/// The NodeSets with a pod on a Kubernetes node, and those that could get one there.
pub fn of_node(nodesets: Store<NodeSet>, pods: PodCache) -> impl Fn(Node) -> Vec<Concerned> {
    move |node| {
        let there = pods.nodesets_on(&node.name_any());
        let all = nodesets.state();
        let concerned = all.iter().filter(|nodeset| {
            let key = (nodeset.namespace().unwrap_or_default(), nodeset.name_any());
            nodeset.spec.scaling_mode == ScalingMode::DaemonSet
                || nodeset.spec.pin_to_node
                || there.contains(&key)
        });
        concerned.map(|nodeset| ObjectRef::from_obj(nodeset.as_ref())).collect()
    }
}

/// What leads to Slurm clusters, and who belongs to them.
#[derive(Clone)]
pub struct Members {
    /// The NodeSets.
    pub nodesets: Store<NodeSet>,
    /// The Controllers.
    pub controllers: Store<Controller>,
    /// The clusters.
    pub clusters: Clusters,
}

impl Members {
    /// The NodeSets of a Controller. The way to its cluster may have changed.
    pub fn of_controller(&self) -> impl Fn(Controller) -> Vec<Concerned> + use<> {
        let members = self.clone();
        move |controller| {
            members.refreshed(&ClusterKey {
                namespace: controller.namespace().unwrap_or_default(),
                controller: controller.name_any(),
            })
        }
    }

    /// The NodeSets of the cluster that a RestApi leads to.
    pub fn of_restapi(&self) -> impl Fn(RestApi) -> Vec<Concerned> + use<> {
        let members = self.clone();
        move |restapi| {
            members.refreshed(&ClusterKey {
                namespace: restapi.namespace().unwrap_or_default(),
                controller: restapi.spec.controller_ref.name.clone(),
            })
        }
    }

    /// The NodeSets whose pods have something of a Secret, and those of clusters whose key it holds.
    pub fn of_secret(&self) -> impl Fn(PartialObjectMeta<Secret>) -> Vec<Concerned> + use<> {
        let members = self.clone();
        move |secret| {
            let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
            let all = members.nodesets.state();
            let ours =
                all.iter().filter(|nodeset| nodeset.namespace().is_some_and(|other| other == namespace));
            let concerned = ours.filter(|nodeset| {
                let sssd_conf = nodeset.spec.enabled_ssh().is_some_and(|ssh| ssh.sssd_conf_ref.name == name);
                let controller = find(&members.controllers, &namespace, &nodeset.spec.controller_ref.name);
                let key = controller.as_ref().and_then(|controller| controller.spec.signing_key_ref());
                let signs = key.is_some_and(|key| key.name == name);
                if signs {
                    members.clusters.refresh(&ClusterKey::of(nodeset));
                }
                sssd_conf || signs
            });
            concerned.map(|nodeset| ObjectRef::from_obj(nodeset.as_ref())).collect()
        }
    }

    /// The NodeSets of clusters about which there is something new.
    pub fn of_slurm(&self) -> impl Stream<Item = Concerned> + Send + use<> {
        let members = self.clone();
        self.clusters.changes().flat_map(move |key| stream::iter(members.of_cluster(&key)))
    }

    fn refreshed(&self, key: &ClusterKey) -> Vec<Concerned> {
        self.clusters.refresh(key);
        self.of_cluster(key)
    }

    fn of_cluster(&self, key: &ClusterKey) -> Vec<Concerned> {
        let all = self.nodesets.state();
        let members = all.iter().filter(|nodeset| ClusterKey::of(nodeset) == *key);
        members.map(|nodeset| ObjectRef::from_obj(nodeset.as_ref())).collect()
    }
}

#[cfg(test)]
mod tests;
