//! What happened, in order, and caches that learn of it as late as a test wants.

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

/// What a watch calls a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The object is new.
    Added,
    /// It was there before.
    Modified,
    /// It is there no more.
    Deleted,
}

/// One committed change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// Which object.
    pub target: Target,
    /// What a watch calls it.
    pub event: Event,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object afterwards; as it was last, if it was deleted.
    pub object: Arc<Value>,
    /// The request that did it; `None` if it was the test.
    pub by: Option<Arc<Call>>,
}

/// A place in what happened to one kind.
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

    /// How many changes are still to come.
    pub fn pending(&self) -> usize {
        let store = self.model.store();
        store.log.iter().skip(self.position).filter(|change| change.target.resource == self.resource).count()
    }

    /// Passes over everything up to now.
    pub fn skip_to_now(&mut self) {
        self.position = self.model.store().log.len();
    }
}

/// The changes in their order. After the last one there may be more later.
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

/// A cache as a reflector keeps it, of all objects of a kind. It knows what it was told, and the test tells it.
pub struct LaggingCache<K: Resource<DynamicType = ()> + Clone + 'static> {
    cursor: Cursor,
    writer: Writer<K>,
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static> LaggingCache<K> {
    /// A cache that has listed what there is now.
    pub fn new(model: &ApiModel) -> Self {
        let cursor = Cursor::new(model, resource_of::<K>());
        let mut cache = Self { cursor, writer: Writer::default() };
        cache.relist();
        cache
    }

    /// What readers see.
    pub fn store(&self) -> Store<K> {
        self.writer.as_reader()
    }

    /// How many changes it has not been told of.
    pub fn pending(&self) -> usize {
        self.cursor.pending()
    }

    /// Tells it of the next changes, at most so many. Gives what a watch would have.
    pub fn deliver(&mut self, count: usize) -> Vec<watcher::Event<K>> {
        let changes: Vec<Change> = self.cursor.by_ref().take(count).collect();
        let events = changes.iter().map(|change| match change.event {
            Event::Added | Event::Modified => watcher::Event::Apply(typed(&change.object)),
            Event::Deleted => watcher::Event::Delete(typed(&change.object)),
        });
        self.tell(events.collect())
    }

    /// Has it list anew: it knows everything of now, and nobody tells it what was in between.
    pub fn relist(&mut self) -> Vec<watcher::Event<K>> {
        self.cursor.skip_to_now();
        let objects = self.cursor.model.list::<K>("");
        let objects = objects.iter().map(|object| watcher::Event::InitApply(typed(object)));
        let events = [watcher::Event::Init].into_iter().chain(objects).chain([watcher::Event::InitDone]);
        self.tell(events.collect())
    }

    fn tell(&mut self, events: Vec<watcher::Event<K>>) -> Vec<watcher::Event<K>> {
        for event in &events {
            self.writer.apply_watcher_event(event);
        }
        events
    }
}

fn typed<K: DeserializeOwned>(object: &Value) -> K {
    K::deserialize(object).expect("an object that its kind cannot hold")
}
