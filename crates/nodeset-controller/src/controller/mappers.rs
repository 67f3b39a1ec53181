//! Maps changed objects to the NodeSets that depend on them.

use crate::cache::{NodeCache, PodCache, SecretHashes, nodesets_of};
use crate::slurm::{ClusterKey, Clusters};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use operator_runtime::{MetadataEvents, changed_by, changed_objects, find};
use slinky_api::labels::APP_INSTANCE;
use slinky_api::v1beta1::{Controller, NodeSet, RestApi, ScalingMode};

fn named(namespace: Option<String>, name: &str) -> ObjectRef<NodeSet> {
    ObjectRef::new(name).within(&namespace.unwrap_or_default())
}

/// The NodeSet that controls a pod, and the one whose labels it has.
pub fn of_pod(pod: &Pod) -> Vec<ObjectRef<NodeSet>> {
    nodesets_of(pod).iter().map(|name| named(pod.namespace(), name)).collect()
}

/// The NodeSet that the label of an object names.
pub fn of_label<K: Resource<DynamicType = ()>>(object: &K) -> Option<ObjectRef<NodeSet>> {
    object.labels().get(APP_INSTANCE).map(|name| named(object.namespace(), name))
}

/// All NodeSets among the owners of an object.
pub fn of_owners<K: Resource<DynamicType = ()>>(object: &K) -> Vec<ObjectRef<NodeSet>> {
    let kind = NodeSet::kind(&());
    let owners = object.owner_references().iter().filter(|owner| owner.kind == kind);
    owners.map(|owner| named(object.namespace(), &owner.name)).collect()
}

/// Kubernetes nodes whose facts changed. The cache of facts is invalidated before they are emitted.
pub fn node_changes(
    changes: BoxStream<'static, watcher::Result<Node>>,
    store: Store<Node>,
    nodes: NodeCache,
) -> BoxStream<'static, watcher::Result<Node>> {
    let reader = nodes.clone();
    changed_by(changes, store, move |node| reader.facts(node)).inspect_ok(move |_| nodes.invalidate()).boxed()
}

/// Secrets that changed. Their cached hashes are invalidated before they are emitted.
pub fn secret_changes(
    cache: Store<PartialObjectMeta<Secret>>,
    events: MetadataEvents<Secret>,
    hashes: SecretHashes,
) -> BoxStream<'static, watcher::Result<PartialObjectMeta<Secret>>> {
    changed_objects(cache, events.inspect_ok(move |event| hashes.observe(event)))
}

/// The NodeSets with a pod on a Kubernetes node, and those that may place one there.
pub fn of_node(nodesets: Store<NodeSet>, pods: PodCache) -> impl Fn(&str) -> Vec<ObjectRef<NodeSet>> {
    move |node| {
        let on_node = pods.nodesets_on(node);
        let all = nodesets.state();
        let affected = all.iter().filter(|nodeset| {
            let key = (nodeset.namespace().unwrap_or_default(), nodeset.name_any());
            nodeset.spec.scaling_mode == ScalingMode::DaemonSet
                || nodeset.spec.pin_to_node
                || on_node.contains(&key)
        });
        affected.map(|nodeset| ObjectRef::from_obj(nodeset.as_ref())).collect()
    }
}

/// Maps the objects of a Slurm cluster to its NodeSets, and has the connection to the cluster refreshed.
#[derive(Clone)]
pub struct ClusterMembers {
    /// The NodeSets.
    pub nodesets: Store<NodeSet>,
    /// The Controllers.
    pub controllers: Store<Controller>,
    /// The clusters.
    pub clusters: Clusters,
}

impl ClusterMembers {
    /// The NodeSets of a Controller.
    pub fn of_controller(&self) -> impl Fn(Controller) -> Vec<ObjectRef<NodeSet>> + use<> {
        let members = self.clone();
        move |controller| {
            members.refreshed(&ClusterKey {
                namespace: controller.namespace().unwrap_or_default(),
                controller: controller.name_any(),
            })
        }
    }

    /// The NodeSets of the cluster that a RestApi serves.
    pub fn of_restapi(&self) -> impl Fn(RestApi) -> Vec<ObjectRef<NodeSet>> + use<> {
        let members = self.clone();
        move |restapi| {
            members.refreshed(&ClusterKey {
                namespace: restapi.namespace().unwrap_or_default(),
                controller: restapi.spec.controller_ref.name.clone(),
            })
        }
    }

    /// The NodeSets whose sssd.conf, or whose cluster's signing key, is in a Secret.
    pub fn of_secret(&self) -> impl Fn(PartialObjectMeta<Secret>) -> Vec<ObjectRef<NodeSet>> + use<> {
        let members = self.clone();
        move |secret| {
            let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
            let all = members.nodesets.state();
            let ours =
                all.iter().filter(|nodeset| nodeset.namespace().is_some_and(|other| other == namespace));
            let affected = ours.filter(|nodeset| {
                let sssd_conf = nodeset.spec.enabled_ssh().is_some_and(|ssh| ssh.sssd_conf_ref.name == name);
                let controller = find(&members.controllers, &namespace, &nodeset.spec.controller_ref.name);
                let key = controller.as_ref().and_then(|controller| controller.spec.signing_key_ref());
                let signs = key.is_some_and(|key| key.name == name);
                if signs {
                    members.clusters.refresh(&ClusterKey::of(nodeset));
                }
                sssd_conf || signs
            });
            affected.map(|nodeset| ObjectRef::from_obj(nodeset.as_ref())).collect()
        }
    }

    /// The NodeSets of Slurm clusters whose state changed.
    pub fn of_slurm(&self) -> impl Stream<Item = ObjectRef<NodeSet>> + Send + use<> {
        let members = self.clone();
        self.clusters.changes().flat_map(move |key| stream::iter(members.of_cluster(&key)))
    }

    fn refreshed(&self, key: &ClusterKey) -> Vec<ObjectRef<NodeSet>> {
        self.clusters.refresh(key);
        self.of_cluster(key)
    }

    fn of_cluster(&self, key: &ClusterKey) -> Vec<ObjectRef<NodeSet>> {
        let all = self.nodesets.state();
        let members = all.iter().filter(|nodeset| ClusterKey::of(nodeset) == *key);
        members.map(|nodeset| ObjectRef::from_obj(nodeset.as_ref())).collect()
    }
}

#[cfg(test)]
mod tests;
