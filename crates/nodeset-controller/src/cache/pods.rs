//! Worker pods with an index by NodeSet and by Kubernetes node.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use slinky_api::labels::APP_INSTANCE;
use slinky_api::ownership::controller_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Namespace and name.
type Key = (String, String);

/// A cache of pods, indexed by the NodeSets that they belong to: by controller reference and by label.
#[derive(Clone)]
pub struct PodCache {
    store: Store<Pod>,
    index: Arc<Mutex<Index>>,
}

#[derive(Default)]
struct Index {
    /// Names of pods by NodeSet.
    pods: BTreeMap<Key, BTreeSet<String>>,
    /// NodeSets by pod (the one in its label and the one that controls it), and its Kubernetes node.
    nodesets: BTreeMap<Key, (BTreeSet<String>, Option<String>)>,
    /// Pods by Kubernetes node.
    hosts: BTreeMap<String, BTreeSet<Key>>,
}

impl PodCache {
    /// An index of this store. [`Self::observe`] has to be called for every event, after the store has applied it.
    pub fn new(store: Store<Pod>) -> Self {
        Self { store, index: Arc::default() }
    }

    /// Applies an event of the watch to the index.
    pub fn observe(&self, event: &Event<Pod>) {
        match event {
            Event::Apply(pod) => self.index.lock().insert(pod),
            Event::Delete(pod) => self.index.lock().remove(&key_of(pod)),
            // The store replaces its content when a relist is complete, and so does the index.
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone => *self.index.lock() = Index::of(&self.store.state()),
        }
    }

    /// The pods that a NodeSet controls or could adopt, sorted by name.
    pub fn of(&self, namespace: &str, nodeset: &str) -> Vec<Arc<Pod>> {
        let index = self.index.lock();
        let names = index.pods.get(&(namespace.to_owned(), nodeset.to_owned())).into_iter().flatten();
        // The store drops deleted pods before the index does.
        names.filter_map(|name| self.store.get(&ObjectRef::new(name).within(namespace))).collect()
    }

    /// Namespaces and names of the NodeSets that have a pod on a Kubernetes node.
    pub fn nodesets_on(&self, node: &str) -> BTreeSet<Key> {
        let index = self.index.lock();
        let pods = index.hosts.get(node).into_iter().flatten();
        pods.filter_map(|pod| Some((&pod.0, &index.nodesets.get(pod)?.0)))
            .flat_map(|(namespace, nodesets)| nodesets.iter().map(|name| (namespace.clone(), name.clone())))
            .collect()
    }
}

impl Index {
    fn of(pods: &[Arc<Pod>]) -> Self {
        let mut index = Self::default();
        for pod in pods {
            index.insert(pod);
        }
        index
    }

    fn insert(&mut self, pod: &Pod) {
        let key = key_of(pod);
        let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
        let entry = (nodesets_of(pod), host);
        if self.nodesets.get(&key) == Some(&entry) {
            return;
        }
        self.remove(&key);
        for nodeset in &entry.0 {
            self.pods.entry((key.0.clone(), nodeset.clone())).or_default().insert(key.1.clone());
        }
        if let Some(host) = &entry.1 {
            self.hosts.entry(host.clone()).or_default().insert(key.clone());
        }
        self.nodesets.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) {
        let Some((nodesets, host)) = self.nodesets.remove(key) else { return };
        for nodeset in nodesets {
            discard(&mut self.pods, &(key.0.clone(), nodeset), &key.1);
        }
        if let Some(host) = host {
            discard(&mut self.hosts, &host, key);
        }
    }
}

/// Removes an item from a set, and the set when it is empty.
fn discard<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, item: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(item);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

fn key_of(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
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
            Self { cache: PodCache::new(store), writer }
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
