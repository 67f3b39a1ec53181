//! State per object. It is bound to the UID: an object that was deleted and recreated under the same name starts
//! without state.

use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt, core::DynamicObject};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Kind, namespace and name of an object. It identifies objects that are already deleted, too.
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

/// One `T` per object, keyed by name and valid for one UID.
#[derive(Debug, Default)]
pub struct PerObject<T> {
    entries: Mutex<BTreeMap<ObjectKey, (Option<String>, T)>>,
}

impl<T: Default> PerObject<T> {
    /// Calls `change` with the value of `object`, which is the default if there is none for this UID.
    pub fn with<K: Resource<DynamicType = ()>, R>(&self, object: &K, change: impl FnOnce(&mut T) -> R) -> R {
        let mut entries = self.entries.lock();
        let (uid, value) =
            entries.entry(ObjectKey::of(object)).or_insert_with(|| (object.uid(), T::default()));
        if *uid != object.uid() {
            *uid = object.uid();
            *value = T::default();
        }
        change(value)
    }

    /// Calls `change` with every value.
    pub fn for_each(&self, mut change: impl FnMut(&mut T)) {
        self.entries.lock().values_mut().for_each(|(_, value)| change(value));
    }

    /// Drops the value of an object.
    pub fn forget(&self, key: &ObjectKey) {
        self.entries.lock().remove(key);
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
    fn recreated_object_of_the_same_name_starts_with_the_default() {
        let counters = PerObject::<u32>::default();
        assert_eq!(increment(&counters, &object("a", "1")), 1);
        assert_eq!(increment(&counters, &object("a", "1")), 2);
        assert_eq!(increment(&counters, &object("b", "1")), 1);
        assert_eq!(increment(&counters, &object("a", "2")), 1);
    }

    #[test]
    fn forget_removes_the_entry() {
        let counters = PerObject::<u32>::default();
        increment(&counters, &object("a", "1"));
        counters.forget(&ObjectKey::of(&object("a", "1")));
        assert!(counters.entries.lock().is_empty());
    }
}
