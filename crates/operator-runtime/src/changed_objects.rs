//! The objects that something happened to, told when a cache shows it.
//!
//! kube has this too, but tells of each object of a new list while it is being read, when no cache has it yet, and not of
//! those that the list lacks because they went while the watch was broken.

use crate::scope::Watched;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use std::sync::Arc;

/// The objects that something happened to. The `events` have been through the `cache`.
pub fn changed_objects<K: Watched>(
    cache: Store<K>,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
) -> BoxStream<'static, watcher::Result<K>> {
    let mut list = List { cache, before: vec![], now: vec![] };
    events
        .flat_map(move |event| {
            let touched = match event {
                Ok(event) => list.touched_by(event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(touched)
        })
        .boxed()
}

/// A list that is being read.
struct List<K: Watched> {
    cache: Store<K>,
    /// What was there when it began.
    before: Vec<Arc<K>>,
    /// What it held so far.
    now: Vec<K>,
}

impl<K: Watched> List<K> {
    fn touched_by(&mut self, event: Event<K>) -> Vec<K> {
        match event {
            Event::Apply(object) | Event::Delete(object) => vec![object],
            Event::Init => {
                self.before = self.cache.state();
                self.now.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.now.push(object);
                vec![]
            }
            Event::InitDone => {
                let is_gone =
                    |object: &Arc<K>| self.cache.get(&ObjectRef::from_obj(object.as_ref())).is_none();
                let gone = std::mem::take(&mut self.before).into_iter().filter(is_gone);
                let mut touched = std::mem::take(&mut self.now);
                touched.extend(gone.map(Arc::unwrap_or_clone));
                touched
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
    fn a_list_is_told_when_it_is_whole_and_with_what_it_lacks() {
        let (store, mut writer) = reflector::store::<Secret>();
        let (sender, events) = futures::channel::mpsc::unbounded();
        let mut told = changed_objects(store, events);
        let mut after = |event: Event<Secret>| {
            writer.apply_watcher_event(&event);
            sender.unbounded_send(Ok(event)).unwrap();
            let mut names = vec![];
            while let Some(Some(object)) = told.next().now_or_never() {
                names.push(object.unwrap().name_any());
            }
            names.sort();
            names
        };
        assert!(after(Event::Init).is_empty());
        assert!(after(Event::InitApply(secret("a"))).is_empty());
        assert!(after(Event::InitApply(secret("b"))).is_empty());
        assert_eq!(after(Event::InitDone), ["a", "b"]);
        assert_eq!(after(Event::Apply(secret("c"))), ["c"]);
        assert_eq!(after(Event::Delete(secret("a"))), ["a"]);
        // A list that broke off, and another one.
        assert!(after(Event::Init).is_empty());
        assert!(after(Event::InitApply(secret("b"))).is_empty());
        assert!(after(Event::Init).is_empty());
        assert!(after(Event::InitApply(secret("d"))).is_empty());
        assert_eq!(after(Event::InitDone), ["b", "c", "d"], "two went unseen");
    }
}
