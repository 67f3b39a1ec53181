//! Pods and NodeSets as watches tell of them, and whether they are as wanted. Pure.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// What exists.
#[derive(Default)]
pub struct World {
    /// Pods of earlier phases, by uid.
    old: BTreeSet<String>,
    /// Pods of this phase that are not being deleted, by uid.
    fresh: BTreeSet<String>,
    /// Pods of this phase that are being deleted, by uid.
    ending: BTreeSet<String>,
    nodesets: BTreeMap<String, Object>,
}

/// What a phase is to bring about: the NodeSets by their names.
pub struct Goal(pub BTreeMap<String, Wish>);

/// How one NodeSet is to be.
pub struct Wish {
    /// The generation of its spec that says so.
    pub generation: i64,
    /// The number of its pods.
    pub size: u32,
}

/// One line of a watch.
#[derive(Deserialize)]
pub struct Event {
    #[serde(rename = "type")]
    change: Change,
    object: Object,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Change {
    Added,
    Modified,
    Deleted,
}

/// What matters of an object of either kind.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    generation: i64,
    deletion_timestamp: Option<String>,
}

/// Of a NodeSet; an absent counter is zero.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    replicas: u32,
    updated_replicas: u32,
    ready_replicas: u32,
}

impl World {
    /// Pods that exist now are not counted as new ones from now on.
    pub fn begin_phase(&mut self) {
        self.old.append(&mut self.fresh);
        self.old.append(&mut self.ending);
    }

    /// Takes in an event of the pods.
    pub fn observe_pod(&mut self, Event { change, object: Object { metadata, .. } }: Event) {
        let was_old = self.old.remove(&metadata.uid);
        self.fresh.remove(&metadata.uid);
        self.ending.remove(&metadata.uid);
        let pods = match (change, metadata.deletion_timestamp) {
            (Change::Deleted, _) => return,
            _ if was_old => &mut self.old,
            (_, Some(_)) => &mut self.ending,
            (_, None) => &mut self.fresh,
        };
        pods.insert(metadata.uid);
    }

    /// Takes in an event of the NodeSets.
    pub fn observe_nodeset(&mut self, Event { change, object }: Event) {
        let name = object.metadata.name.clone();
        if matches!(change, Change::Deleted) {
            self.nodesets.remove(&name);
        } else {
            self.nodesets.insert(name, object);
        }
    }
}

impl Event {
    /// Fails also for the type of event by which a watch says that it failed.
    pub fn parse(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).with_context(|| String::from_utf8_lossy(line).into_owned())
    }

    /// Where a watch goes on behind this event.
    pub fn resource_version(&self) -> &str {
        &self.object.metadata.resource_version
    }
}

impl Goal {
    /// Whether there are as many new pods as wanted; when none are wanted, whether all are gone.
    pub fn is_populated(&self, world: &World) -> bool {
        let wanted: usize = self.0.values().filter_map(|wish| usize::try_from(wish.size).ok()).sum();
        if wanted == 0 {
            world.old.is_empty() && world.fresh.is_empty() && world.ending.is_empty()
        } else {
            world.fresh.len() >= wanted
        }
    }

    /// Whether the status of every NodeSet says that it is as wanted.
    pub fn is_settled(&self, world: &World) -> bool {
        self.0.iter().all(|(name, wish)| wish.is_fulfilled(world.nodesets.get(name)))
    }

    /// How far it got.
    pub fn progress(&self, world: &World) -> String {
        let settled = self.0.iter().filter(|(name, wish)| wish.is_fulfilled(world.nodesets.get(*name)));
        format!(
            "{} new and {} other pods, {} of {} NodeSets settled",
            world.fresh.len(),
            world.old.len() + world.ending.len(),
            settled.count(),
            self.0.len()
        )
    }
}

impl Wish {
    fn is_fulfilled(&self, nodeset: Option<&Object>) -> bool {
        nodeset.is_some_and(|Object { metadata, status }| {
            metadata.generation >= self.generation
                && status.observed_generation == metadata.generation
                && [status.replicas, status.updated_replicas, status.ready_replicas] == [self.size; 3]
        })
    }
}

#[cfg(test)]
mod tests;
