//! Cached objects with an index by the NodeSets that they concern, so that a reconcile reads its own objects only.

use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use operator_runtime::Watched;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Namespace and name.
pub type Key = (String, String);

/// A cache of objects, indexed by the NodeSets that they concern. Clones share it.
pub struct ByNodeSet<K: Watched> {
    store: Store<K>,
    nodesets_of: fn(&K) -> BTreeSet<String>,
    index: Arc<Mutex<Index>>,
}

impl<K: Watched> Clone for ByNodeSet<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), nodesets_of: self.nodesets_of, index: self.index.clone() }
    }
}

#[derive(Default)]
struct Index {
    /// Names of objects by NodeSet.
    objects: BTreeMap<Key, BTreeSet<String>>,
    /// NodeSets by object.
    nodesets: BTreeMap<Key, BTreeSet<String>>,
}

impl<K: Watched> ByNodeSet<K> {
    /// An index of this store. `nodesets_of` names the NodeSets that an object concerns. [`Self::observe`] has to be called
    /// for every event, after the store has applied it.
    pub fn new(store: Store<K>, nodesets_of: fn(&K) -> BTreeSet<String>) -> Self {
        Self { store, nodesets_of, index: Arc::default() }
    }

    /// Applies an event of the watch to the index.
    pub fn observe(&self, event: &Event<K>) {
        match event {
            Event::Apply(object) => self.index.lock().insert(key_of(object), (self.nodesets_of)(object)),
            Event::Delete(object) => self.index.lock().remove(&key_of(object)),
            // The store replaces its content when a relist is complete, and so does the index.
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone => {
                let mut index = Index::default();
                for object in self.store.state() {
                    index.insert(key_of(object.as_ref()), (self.nodesets_of)(&object));
                }
                *self.index.lock() = index;
            }
        }
    }

    /// The objects that concern a NodeSet, sorted by name.
    pub fn of(&self, namespace: &str, nodeset: &str) -> Vec<Arc<K>> {
        let index = self.index.lock();
        let names = index.objects.get(&(namespace.to_owned(), nodeset.to_owned())).into_iter().flatten();
        // The store drops deleted objects before the index does.
        names.filter_map(|name| self.store.get(&ObjectRef::new(name).within(namespace))).collect()
    }

    /// The NodeSets that an object concerns.
    pub fn nodesets(&self, object: &Key) -> BTreeSet<String> {
        self.index.lock().nodesets.get(object).cloned().unwrap_or_default()
    }

    /// The cache itself.
    pub fn store(&self) -> &Store<K> {
        &self.store
    }
}

impl Index {
    fn insert(&mut self, key: Key, nodesets: BTreeSet<String>) {
        if self.nodesets.get(&key) == Some(&nodesets) {
            return;
        }
        self.remove(&key);
        for nodeset in &nodesets {
            self.objects.entry((key.0.clone(), nodeset.clone())).or_default().insert(key.1.clone());
        }
        self.nodesets.insert(key, nodesets);
    }

    fn remove(&mut self, key: &Key) {
        for nodeset in self.nodesets.remove(key).unwrap_or_default() {
            discard(&mut self.objects, &(key.0.clone(), nodeset), &key.1);
        }
    }
}

/// Namespace and name of an object.
pub fn key_of<K: Watched>(object: &K) -> Key {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

/// Removes an item from a set, and the set when it is empty.
pub fn discard<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, item: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(item);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
