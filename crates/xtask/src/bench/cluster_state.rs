//! Pods and NodeSets from watch events, compared with their desired state. Pure.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The observed pods and NodeSets.
#[derive(Default)]
pub struct ClusterState {
    /// Pods of earlier phases, by uid.
    old: BTreeSet<String>,
    /// Pods of this phase that are not being deleted, by uid.
    fresh: BTreeSet<String>,
    /// Pods of this phase that are being deleted, by uid.
    ending: BTreeSet<String>,
    nodesets: BTreeMap<String, Object>,
}

/// The desired state of a phase: NodeSets by name.
pub struct Goal(pub BTreeMap<String, DesiredNodeSet>);

/// The desired state of one NodeSet.
pub struct DesiredNodeSet {
    /// The generation of the spec with this state.
    pub generation: i64,
    /// The number of its pods.
    pub size: u32,
}

/// A watch event.
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

/// The relevant fields of a pod or NodeSet.
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

/// The status of a NodeSet; an absent counter is zero.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    replicas: u32,
    updated_replicas: u32,
    ready_replicas: u32,
}

impl ClusterState {
    /// Starts a phase, in which the pods that exist now do not count as new.
    pub fn begin_phase(&mut self) {
        self.old.append(&mut self.fresh);
        self.old.append(&mut self.ending);
    }

    /// Applies an event of a pod.
    pub fn apply_pod_event(&mut self, Event { change, object: Object { metadata, .. } }: Event) {
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

    /// Applies an event of a NodeSet.
    pub fn apply_nodeset_event(&mut self, Event { change, object }: Event) {
        let name = object.metadata.name.clone();
        if matches!(change, Change::Deleted) {
            self.nodesets.remove(&name);
        } else {
            self.nodesets.insert(name, object);
        }
    }
}

impl Event {
    /// Parses an event; an event of type ERROR is an error.
    pub fn parse(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).with_context(|| String::from_utf8_lossy(line).into_owned())
    }

    /// The resource version from which a watch continues after this event.
    pub fn resource_version(&self) -> &str {
        &self.object.metadata.resource_version
    }
}

impl Goal {
    /// Whether the desired number of new pods exists; for 0, whether all pods are deleted.
    pub fn is_populated(&self, state: &ClusterState) -> bool {
        let size: usize = self.0.values().filter_map(|desired| usize::try_from(desired.size).ok()).sum();
        if size == 0 {
            state.old.is_empty() && state.fresh.is_empty() && state.ending.is_empty()
        } else {
            state.fresh.len() >= size
        }
    }

    /// Whether the status of every NodeSet reports the desired state.
    pub fn is_settled(&self, state: &ClusterState) -> bool {
        self.settled(state) == self.0.len()
    }

    /// The progress as text, for a timeout.
    pub fn progress(&self, state: &ClusterState) -> String {
        format!(
            "{} new and {} other pods, {} of {} NodeSets settled",
            state.fresh.len(),
            state.old.len() + state.ending.len(),
            self.settled(state),
            self.0.len()
        )
    }

    fn settled(&self, state: &ClusterState) -> usize {
        self.0.iter().filter(|(name, desired)| desired.is_reported_by(state.nodesets.get(*name))).count()
    }
}

impl DesiredNodeSet {
    fn is_reported_by(&self, nodeset: Option<&Object>) -> bool {
        nodeset.is_some_and(|Object { metadata, status }| {
            metadata.generation >= self.generation
                && status.observed_generation == metadata.generation
                && [status.replicas, status.updated_replicas, status.ready_replicas] == [self.size; 3]
        })
    }
}

#[cfg(test)]
mod tests;
