//! The changed objects of a watch, emitted after the cache was updated.
//!
//! Our own because kube 5's `touched_objects` emits the objects of a list while it is being read, before a cache has
//! them, and does not emit objects that were deleted while the watch was down, which a relist lacks. A
//! `touched_objects` that follows the store would replace it.

use crate::watched::Watched;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use std::sync::Arc;

/// The objects that were created, changed or deleted. The `events` have already been applied to the `cache`.
pub fn changed_objects<K: Watched>(
    cache: Store<K>,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
) -> BoxStream<'static, watcher::Result<K>> {
    let mut list = List { cache, before: vec![], listed: vec![] };
    events
        .flat_map(move |event| {
            let changed = match event {
                Ok(event) => list.changed_by(event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(changed)
        })
        .boxed()
}

/// A list or relist in progress.
struct List<K: Watched> {
    cache: Store<K>,
    /// The cached objects when it began.
    before: Vec<Arc<K>>,
    /// The objects listed so far.
    listed: Vec<K>,
}

impl<K: Watched> List<K> {
    fn changed_by(&mut self, event: Event<K>) -> Vec<K> {
        match event {
            Event::Apply(object) | Event::Delete(object) => vec![object],
            Event::Init => {
                self.before = self.cache.state();
                self.listed.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.listed.push(object);
                vec![]
            }
            Event::InitDone => {
                let is_deleted =
                    |object: &Arc<K>| self.cache.get(&ObjectRef::from_obj(object.as_ref())).is_none();
                let deleted = std::mem::take(&mut self.before).into_iter().filter(is_deleted);
                let mut changed = std::mem::take(&mut self.listed);
                changed.extend(deleted.map(Arc::unwrap_or_clone));
                changed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::Secret;
    use kube::ResourceExt;
    use kube::runtime::reflector;
    use serde_json::json;

    fn secret(name: &str) -> Secret {
        serde_json::from_value(json!({ "metadata": { "name": name, "namespace": "ns" } })).unwrap()
    }

    #[test]
    fn list_is_emitted_when_complete_and_with_the_objects_that_it_lacks() {
        let (store, mut writer) = reflector::store::<Secret>();
        let (sender, events) = futures::channel::mpsc::unbounded();
        let mut changed = changed_objects(store, events);
        let mut emitted_after = |event: Event<Secret>| {
            writer.apply_watcher_event(&event);
            sender.unbounded_send(Ok(event)).unwrap();
            let mut names = vec![];
            while let Some(Some(object)) = changed.next().now_or_never() {
                names.push(object.unwrap().name_any());
            }
            names.sort();
            names
        };
        assert!(emitted_after(Event::Init).is_empty());
        assert!(emitted_after(Event::InitApply(secret("a"))).is_empty());
        assert!(emitted_after(Event::InitApply(secret("b"))).is_empty());
        assert_eq!(emitted_after(Event::InitDone), ["a", "b"]);
        assert_eq!(emitted_after(Event::Apply(secret("c"))), ["c"]);
        assert_eq!(emitted_after(Event::Delete(secret("a"))), ["a"]);
        // A relist that is interrupted, and its successor.
        assert!(emitted_after(Event::Init).is_empty());
        assert!(emitted_after(Event::InitApply(secret("b"))).is_empty());
        assert!(emitted_after(Event::Init).is_empty());
        assert!(emitted_after(Event::InitApply(secret("d"))).is_empty());
        assert_eq!(emitted_after(Event::InitDone), ["b", "c", "d"], "b and c were deleted unobserved");
    }
}
