//! An object that cannot be deserialised must not stop the watch of all others.
//!
//! A CRD may admit objects that do not fit its Rust type, such as one without `spec`. Such an object is reported, and
//! its last readable version stays in the cache, so that its children are not deleted.

use crate::events::{EventType, Events, NewEvent};
use crate::metrics::{ErrorLabels, METRICS};
use crate::watched::Watched;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;

/// Reason of Events and metrics about objects that cannot be deserialised.
const UNREADABLE: &str = "Unreadable";

/// The event with a readable object: the new version, or else the cached one.
pub fn readable<K: Watched>(
    event: Event<DeserializeGuard<K>>,
    cache: &Store<K>,
    events: &Events,
) -> Option<Event<K>> {
    if let Event::InitApply(object) | Event::Apply(object) = &event {
        report_unreadable(object, events);
    }
    let new_or_cached = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let mut reference = ObjectRef::new(invalid.metadata.name.as_deref().unwrap_or_default());
            reference.namespace = invalid.metadata.namespace;
            cache.get(&reference).map(|object| object.as_ref().clone())
        }
    };
    match event {
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
        Event::InitApply(guard) => new_or_cached(guard).map(Event::InitApply),
        // If it is unreadable, the cache already has the last readable version: nothing changes.
        Event::Apply(guard) => guard.0.ok().map(Event::Apply),
        Event::Delete(guard) => new_or_cached(guard).map(Event::Delete),
    }
}

fn report_unreadable<K: Watched>(object: &DeserializeGuard<K>, events: &Events) {
    let Err(invalid) = &object.0 else { return };
    let kind = K::kind(&()).into_owned();
    let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
    tracing::warn!(kind, ?namespace, ?name, error = invalid.error, "Deserialising an object failed");
    METRICS.reconcile_errors.get_or_create(&ErrorLabels { kind, reason: UNREADABLE }).inc();
    let event = NewEvent {
        type_: EventType::Warning,
        reason: UNREADABLE.to_owned(),
        action: "Read".to_owned(),
        note: format!(
            "cannot deserialise this object; its last readable version, if any, stays in effect: {}",
            invalid.error
        ),
        related: None,
    };
    events.publish_change(object, event);
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
    fn last_readable_version_stays_cached_until_the_object_is_deleted() {
        let (cache, mut writer) = store();
        let (events, mut published) = Events::unsent(9);
        let good = || object("1", &json!({ "k": "v" }));
        let bad = || object("2", &json!({ "k": 7 }));

        let first = readable(Event::Apply(good()), &cache, &events);
        assert_eq!(version(first.as_ref()).as_deref(), Some("1"));
        writer.apply_watcher_event(&first.unwrap());

        assert!(readable(Event::Apply(bad()), &cache, &events).is_none());
        let (regarding, event) = published.try_recv().unwrap();
        assert_eq!((regarding.name.as_deref(), event.reason.as_str()), (Some("a"), UNREADABLE));

        let listed = readable(Event::InitApply(bad()), &cache, &events);
        assert_eq!(version(listed.as_ref()).as_deref(), Some("1"), "a relist keeps the readable version");
        assert!(published.try_recv().is_err(), "the same error was published twice");

        let deleted = readable(Event::Delete(bad()), &cache, &events);
        assert_eq!(version(deleted.as_ref()).as_deref(), Some("1"), "the deletion has to reach the cache");
    }

    #[test]
    fn object_that_was_never_readable_is_not_cached() {
        let (cache, _writer) = store();
        let (events, mut published) = Events::unsent(9);
        let bad = || object("2", &json!([]));
        assert!(readable(Event::InitApply(bad()), &cache, &events).is_none());
        assert!(readable(Event::Delete(bad()), &cache, &events).is_none());
        assert!(published.try_recv().is_ok());
    }
}
