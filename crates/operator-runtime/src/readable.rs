//! One object that cannot be read must not stop the watch of all others.
//!
//! A definition may admit what its type here does not know: an object without `spec`, say. Such an object is told of
//! and kept as it was when it last could be read, so that nothing is undone because of it.

use crate::events::{EventType, Events, NewEvent};
use crate::metrics::{ErrorLabels, METRICS};
use crate::scope::Watched;
use kube::core::{DeserializeGuard, Resource};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;

/// Reason of Events and metrics about objects that cannot be read.
const UNREADABLE: &str = "Unreadable";

/// The event with an object that can be read: the new one, or the one in the cache.
pub fn readable<K: Watched>(
    event: Event<DeserializeGuard<K>>,
    cache: &Store<K>,
    events: &Events,
) -> Option<Event<K>> {
    let last_readable = |unreadable: &DeserializeGuard<K>| {
        let meta = unreadable.meta();
        let mut reference = ObjectRef::new(meta.name.as_deref().unwrap_or_default());
        reference.namespace.clone_from(&meta.namespace);
        cache.get(&reference).map(|object| object.as_ref().clone())
    };
    let read = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let unreadable = DeserializeGuard(Err(invalid));
            tell(&unreadable, events);
            last_readable(&unreadable)
        }
    };
    match event {
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
        Event::InitApply(guard) => read(guard).map(Event::InitApply),
        // What is in the cache already is no news.
        Event::Apply(guard) if guard.0.is_err() => {
            tell(&guard, events);
            None
        }
        Event::Apply(guard) => read(guard).map(Event::Apply),
        Event::Delete(guard) => {
            guard.0.as_ref().ok().cloned().or_else(|| last_readable(&guard)).map(Event::Delete)
        }
    }
}

fn tell<K: Watched>(object: &DeserializeGuard<K>, events: &Events) {
    let Err(invalid) = &object.0 else { return };
    let kind = K::kind(&()).into_owned();
    let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
    tracing::warn!(kind, ?namespace, ?name, error = invalid.error, "An object cannot be read");
    METRICS.reconcile_errors.get_or_create(&ErrorLabels { kind, reason: UNREADABLE }).inc();
    let notice = NewEvent {
        type_: EventType::Warning,
        reason: UNREADABLE.to_owned(),
        action: "Read".to_owned(),
        note: format!("this object cannot be read and is left as it was: {}", invalid.error),
        related: None,
    };
    events.publish_change(object, notice);
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::runtime::reflector::store;
    use serde_json::{Value, json};

    fn object(version: &str, data: &Value) -> DeserializeGuard<ConfigMap> {
        let metadata = json!({ "name": "a", "namespace": "ns", "resourceVersion": version, "uid": "u" });
        serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap()
    }

    fn version(event: Option<&Event<ConfigMap>>) -> Option<String> {
        match event? {
            Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) => {
                object.resource_version()
            }
            Event::Init | Event::InitDone => None,
        }
    }

    #[test]
    fn an_object_that_cannot_be_read_stays_as_it_was_until_it_is_deleted() {
        let (cache, mut writer) = store();
        let (events, mut told) = Events::unsent(9);
        let good = || object("1", &json!({ "k": "v" }));
        let bad = || object("2", &json!({ "k": 7 }));

        let first = readable(Event::Apply(good()), &cache, &events);
        assert_eq!(version(first.as_ref()).as_deref(), Some("1"));
        writer.apply_watcher_event(&first.unwrap());

        assert!(readable(Event::Apply(bad()), &cache, &events).is_none());
        let (regarding, notice) = told.try_recv().unwrap();
        assert_eq!((regarding.name.as_deref(), notice.reason.as_str()), (Some("a"), UNREADABLE));

        let listed = readable(Event::InitApply(bad()), &cache, &events);
        assert_eq!(version(listed.as_ref()).as_deref(), Some("1"), "a new list keeps what could be read");
        assert!(told.try_recv().is_err(), "the same trouble was told twice");

        let deleted = readable(Event::Delete(bad()), &cache, &events);
        assert_eq!(version(deleted.as_ref()).as_deref(), Some("1"), "it leaves the cache");
    }

    #[test]
    fn an_object_that_never_could_be_read_is_not_there() {
        let (cache, _writer) = store();
        let (events, mut told) = Events::unsent(9);
        let bad = || object("2", &json!([]));
        assert!(readable(Event::InitApply(bad()), &cache, &events).is_none());
        assert!(readable(Event::Delete(bad()), &cache, &events).is_none());
        assert!(told.try_recv().is_ok());
    }
}
