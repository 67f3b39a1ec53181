//! Memory about single objects that cannot leak into their successors: an object that was deleted and made anew under
//! the same name starts with nothing.

use crate::lock;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt, core::DynamicObject};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Kind, namespace and name of an object; what is left of it after its deletion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    kind: String,
    namespace: Option<String>,
    name: String,
}

impl ObjectKey {
    /// The key of an object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self { kind: K::kind(&()).into_owned(), namespace: object.namespace(), name: object.name_any() }
    }
}

impl From<&ObjectRef<DynamicObject>> for ObjectKey {
    fn from(object: &ObjectRef<DynamicObject>) -> Self {
        Self {
            kind: object.dyntype.kind.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }
    }
}

/// One `T` per object, found by name and valid for one UID.
#[derive(Debug)]
pub struct PerObject<T> {
    entries: Mutex<BTreeMap<ObjectKey, (Option<String>, T)>>,
}

impl<T> Default for PerObject<T> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<T: Default> PerObject<T> {
    /// Gives access to the value kept for `object`: the default one if nothing is known of this very UID.
    pub fn with<K: Resource<DynamicType = ()>, R>(&self, object: &K, change: impl FnOnce(&mut T) -> R) -> R {
        let mut entries = lock(&self.entries);
        let (uid, value) =
            entries.entry(ObjectKey::of(object)).or_insert_with(|| (object.uid(), T::default()));
        if *uid != object.uid() {
            *uid = object.uid();
            *value = T::default();
        }
        change(value)
    }

    /// Drops what is known of an object.
    pub fn forget(&self, key: &ObjectKey) {
        lock(&self.entries).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::{ObjectKey, PerObject};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Resource;

    fn object(name: &str, uid: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.meta_mut().namespace = Some("ns".into());
        object.meta_mut().name = Some(name.into());
        object.meta_mut().uid = Some(uid.into());
        object
    }

    fn increment(counters: &PerObject<u32>, object: &ConfigMap) -> u32 {
        counters.with(object, |count| {
            *count += 1;
            *count
        })
    }

    #[test]
    fn a_successor_of_the_same_name_starts_anew() {
        let counters = PerObject::<u32>::default();
        assert_eq!(increment(&counters, &object("a", "1")), 1);
        assert_eq!(increment(&counters, &object("a", "1")), 2);
        assert_eq!(increment(&counters, &object("b", "1")), 1);
        assert_eq!(increment(&counters, &object("a", "2")), 1);
    }

    #[test]
    fn what_is_forgotten_leaves_no_entry() {
        let counters = PerObject::<u32>::default();
        increment(&counters, &object("a", "1"));
        counters.forget(&ObjectKey::of(&object("a", "1")));
        assert!(counters.entries.lock().unwrap().is_empty());
    }
}
