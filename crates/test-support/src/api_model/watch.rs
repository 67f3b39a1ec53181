//! The ordered changes of all objects, and caches to which a test delivers them with a delay.

use super::routes::Call;
use super::store::Target;
use super::{ApiModel, resource_of};
use kube::Resource;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The object was created.
    Added,
    /// The object was changed.
    Modified,
    /// The object was removed.
    Deleted,
}

/// One committed change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The object.
    pub target: Target,
    /// The type of the watch event.
    pub event: Event,
    /// The object before the change.
    pub before: Option<Arc<Value>>,
    /// The object after the change; the last version of a deleted object.
    pub object: Arc<Value>,
    /// The request that caused it; `None` if the test did.
    pub by: Option<Arc<Call>>,
}

/// A position in the changes of one kind.
#[derive(Clone)]
pub struct Cursor {
    model: ApiModel,
    resource: String,
    position: usize,
}

impl Cursor {
    pub(super) fn new(model: &ApiModel, resource: String) -> Self {
        let position = model.store().log.len();
        Self { model: model.clone(), resource, position }
    }

    /// Number of changes after the position.
    pub fn pending(&self) -> usize {
        let store = self.model.store();
        store.log.iter().skip(self.position).filter(|change| change.target.resource == self.resource).count()
    }

    /// Moves the position to the end.
    pub fn skip_to_now(&mut self) {
        self.position = self.model.store().log.len();
    }
}

/// Iterates over the changes in order. After `None`, later changes may follow.
impl Iterator for Cursor {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let store = self.model.store();
        let mut rest = store.log.iter().enumerate().skip(self.position);
        let (found, change) = rest.find(|(_, change)| change.target.resource == self.resource)?;
        self.position = found + 1;
        Some(change.clone())
    }
}

/// A reflector's cache of all objects of a kind, to which the test delivers the changes.
pub struct LaggingCache<K: Resource<DynamicType = ()> + Clone + 'static> {
    cursor: Cursor,
    writer: Writer<K>,
    is_selected: Box<dyn Fn(&K) -> bool + Send>,
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static> LaggingCache<K> {
    /// A cache that was filled by a list now.
    pub fn new(model: &ApiModel) -> Self {
        let cursor = Cursor::new(model, resource_of::<K>());
        let mut cache = Self { cursor, writer: Writer::default(), is_selected: Box::new(|_| true) };
        cache.relist();
        cache
    }

    /// The reader of the cache.
    pub fn store(&self) -> Store<K> {
        self.writer.as_reader()
    }

    /// Number of changes that were not delivered yet.
    pub fn pending(&self) -> usize {
        self.cursor.pending()
    }

    /// Delivers at most `count` changes and returns their watch events.
    pub fn deliver(&mut self, count: usize) -> Vec<watcher::Event<K>> {
        let changes: Vec<Change> = self.cursor.by_ref().take(count).collect();
        let events = changes.iter().map(|change| match change.event {
            Event::Added | Event::Modified => watcher::Event::Apply(typed(&change.object)),
            Event::Deleted => watcher::Event::Delete(typed(&change.object)),
        });
        let is_selected = |event: &watcher::Event<K>| match event {
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => (self.is_selected)(object),
            watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone => true,
        };
        self.apply_events(events.filter(is_selected).collect())
    }

    /// Restricts the watch to the objects for which `is_selected` is true. It has to be followed by [`Self::relist`].
    pub fn select(&mut self, is_selected: impl Fn(&K) -> bool + Send + 'static) {
        self.is_selected = Box::new(is_selected);
    }

    /// Relists: the cache has the present state and skips the changes in between.
    pub fn relist(&mut self) -> Vec<watcher::Event<K>> {
        self.cursor.skip_to_now();
        let objects = self.cursor.model.list::<K>("");
        let objects = objects.iter().map(|object| typed(object)).filter(|object| (self.is_selected)(object));
        let objects = objects.map(watcher::Event::InitApply);
        let events = [watcher::Event::Init].into_iter().chain(objects).chain([watcher::Event::InitDone]);
        self.apply_events(events.collect())
    }

    fn apply_events(&mut self, events: Vec<watcher::Event<K>>) -> Vec<watcher::Event<K>> {
        for event in &events {
            self.writer.apply_watcher_event(event);
        }
        events
    }
}

fn typed<K: DeserializeOwned>(object: &Value) -> K {
    K::deserialize(object).expect("the object deserializes as its kind")
}
