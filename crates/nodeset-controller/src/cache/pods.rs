//! Worker pods with an index by NodeSet and by Kubernetes node.

use super::PodSelection;
use super::by_nodeset::{ByNodeSet, Key, discard, key_of};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use slinky_api::labels::APP_INSTANCE;
use slinky_api::ownership::controller_of;
use slinky_api::v1beta1::NodeSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A cache of pods, indexed by the NodeSets that they belong to (by controller reference and by label) and by their
/// Kubernetes nodes.
#[derive(Clone)]
pub struct PodCache {
    pods: ByNodeSet<Pod>,
    hosts: Arc<Mutex<Hosts>>,
    selection: Arc<PodSelection>,
}

/// The Kubernetes nodes of pods.
#[derive(Default)]
struct Hosts {
    /// Pods by Kubernetes node.
    pods: BTreeMap<String, BTreeSet<Key>>,
    /// Kubernetes node by pod.
    hosts: BTreeMap<Key, String>,
}

impl PodCache {
    /// An index of this store, which has the pods of this selection. [`Self::observe`] has to be called for every event,
    /// after the store has applied it.
    pub fn new(store: Store<Pod>, selection: Arc<PodSelection>) -> Self {
        Self { pods: ByNodeSet::new(store, nodesets_of), hosts: Arc::default(), selection }
    }

    /// Applies an event of the watch to the index.
    pub fn observe(&self, event: &Event<Pod>) {
        self.pods.observe(event);
        match event {
            Event::Apply(pod) => self.hosts.lock().insert(pod),
            Event::Delete(pod) => self.hosts.lock().remove(&key_of(pod)),
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone => {
                let mut hosts = Hosts::default();
                self.pods.store().state().iter().for_each(|pod| hosts.insert(pod));
                *self.hosts.lock() = hosts;
            }
        }
        // Last: what it says of the cache is true of the indexes then.
        self.selection.observe(event);
    }

    /// Whether the cache has the pods of a NodeSet. If not, it will: a NodeSet that another replica owned until now.
    pub fn includes(&self, nodeset: &NodeSet) -> bool {
        self.selection.includes(nodeset)
    }

    /// The pods that a NodeSet controls or could adopt, sorted by name.
    pub fn of(&self, namespace: &str, nodeset: &str) -> Vec<Arc<Pod>> {
        self.pods.of(namespace, nodeset)
    }

    /// Namespaces and names of the NodeSets that have a pod on a Kubernetes node.
    pub fn nodesets_on(&self, node: &str) -> BTreeSet<Key> {
        let pods = self.hosts.lock().pods.get(node).cloned().unwrap_or_default();
        let nodesets = |pod: Key| self.pods.nodesets(&pod).into_iter().map(move |name| (pod.0.clone(), name));
        pods.into_iter().flat_map(nodesets).collect()
    }
}

impl Hosts {
    fn insert(&mut self, pod: &Pod) {
        let key = key_of(pod);
        let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
        if self.hosts.get(&key) == host.as_ref() {
            return;
        }
        self.remove(&key);
        if let Some(host) = host {
            self.pods.entry(host.clone()).or_default().insert(key.clone());
            self.hosts.insert(key, host);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(host) = self.hosts.remove(key) {
            discard(&mut self.pods, &host, key);
        }
    }
}

/// The NodeSets that a pod belongs to: the one that controls it and the one in its label.
pub fn nodesets_of(pod: &Pod) -> BTreeSet<String> {
    let controller =
        controller_of(&pod.metadata).filter(|owner| owner.kind == "NodeSet").map(|owner| &owner.name);
    controller.into_iter().chain(pod.labels().get(APP_INSTANCE)).cloned().collect()
}

/// Whether a NodeSet controls a pod or could adopt it.
pub fn concerns(pod: &Pod, nodeset: &str) -> bool {
    nodesets_of(pod).contains(nodeset)
}

/// Drops the fields that no decision uses, to save memory with thousands of pods.
pub fn trim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if let Some(spec) = pod.spec.take() {
        pod.spec = Some(PodSpec {
            node_name: spec.node_name,
            hostname: spec.hostname,
            host_network: spec.host_network,
            affinity: spec.affinity,
            ..PodSpec::default()
        });
    }
    if let Some(status) = &mut pod.status {
        let statuses = status.container_statuses.take().unwrap_or_default();
        // Decisions need to know whether a container ever ran.
        status.container_statuses = Some(
            statuses
                .into_iter()
                .map(|mut container| {
                    container.image = String::new();
                    container.image_id = String::new();
                    container.resources = None;
                    container.volume_mounts = None;
                    container.allocated_resources_status = None;
                    container
                })
                .collect(),
        );
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
        status.resource_claim_statuses = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::reflector::{self, store::Writer};
    use serde_json::json;

    fn pod(name: &str, label: &str, owner: &str) -> Pod {
        let owners = json!([{ "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": owner,
            "uid": "u", "controller": true }]);
        let metadata = json!({ "name": name, "namespace": "ns", "labels": { APP_INSTANCE: label },
            "ownerReferences": owners });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    /// A cache that gets watch events.
    struct Fixture {
        cache: PodCache,
        writer: Writer<Pod>,
    }

    impl Fixture {
        fn new() -> Self {
            let (store, writer) = reflector::store();
            Self { cache: PodCache::new(store, Arc::default()), writer }
        }

        fn apply(&mut self, event: &Event<Pod>) {
            self.writer.apply_watcher_event(event);
            self.cache.observe(event);
        }

        fn pods(&self, nodeset: &str) -> String {
            let names: Vec<_> = self.cache.of("ns", nodeset).iter().map(|pod| pod.name_any()).collect();
            names.join(" ")
        }
    }

    #[test]
    fn pods_are_found_by_their_label_and_by_their_controller() {
        let mut fixture = Fixture::new();
        fixture.apply(&Event::Apply(pod("a-1", "a", "a")));
        fixture.apply(&Event::Apply(pod("a-0", "a", "a")));
        fixture.apply(&Event::Apply(pod("odd", "b", "a")));
        assert_eq!(fixture.pods("a"), "a-0 a-1 odd");
        assert_eq!(fixture.pods("b"), "odd");
        fixture.apply(&Event::Apply(pod("odd", "b", "b")));
        fixture.apply(&Event::Delete(pod("a-1", "a", "a")));
        assert_eq!(fixture.pods("a"), "a-0", "one was adopted by another NodeSet, one was deleted");
    }

    #[test]
    fn relist_replaces_the_index_when_it_is_complete() {
        let mut fixture = Fixture::new();
        fixture.apply(&Event::Apply(pod("a-0", "a", "a")));
        fixture.apply(&Event::Apply(pod("moved", "a", "a")));
        fixture.apply(&Event::Init);
        fixture.apply(&Event::InitApply(pod("a-1", "a", "a")));
        fixture.apply(&Event::InitApply(pod("moved", "b", "b")));
        assert_eq!((fixture.pods("a"), fixture.pods("b")), ("a-0 moved".to_owned(), String::new()));
        fixture.apply(&Event::InitDone);
        assert_eq!((fixture.pods("a"), fixture.pods("b")), ("a-1".to_owned(), "moved".to_owned()));
    }
}
