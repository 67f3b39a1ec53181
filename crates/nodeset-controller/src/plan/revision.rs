//! The current revision, and the cleanup of older ones.
//!
//! Revisions are compared by meaning, not by their JSON: a revision written by another operator version keeps its hash,
//! because a new hash would replace all running workers.

mod equivalence;

use crate::build::revision_name;
use equivalence::is_equivalent;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use serde_json::Value;
use slinky_api::labels::{Labels, REVISION_HASH, selector_labels};
use slinky_api::names::LONGEST_LABEL;
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The current revision, and the changes to stored ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// The hash of the current revision.
    pub hash: String,
    /// Changes, in this order.
    pub steps: Vec<RevisionStep>,
    /// How many hash collisions there were.
    pub collision_count: i32,
}

/// One change to a stored revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevisionStep {
    /// Makes the NodeSet the controller of this revision.
    Adopt(String),
    /// Sets the selector labels and the hash label of a revision.
    Label {
        /// Its name.
        name: String,
        /// Its hash.
        hash: String,
    },
    /// Makes a revision the latest.
    Renumber {
        /// Its name.
        name: String,
        /// Its revision number.
        number: i64,
    },
    /// Creates a revision.
    Create {
        /// Its hash.
        hash: String,
        /// Its revision number.
        number: i64,
    },
    /// Deletes this revision.
    Delete(String),
}

/// Decides about revisions. `listed` includes revisions of other owners, because their names are taken. `data` is the
/// content of the current revision, `hashes_in_use` are the hashes of pods, and `hash` is the hash of `data` after this
/// many collisions.
pub fn decide(
    nodeset: &NodeSet,
    listed: &[Arc<ControllerRevision>],
    data: &Value,
    hashes_in_use: &BTreeSet<String>,
    hash: impl Fn(i32) -> String,
) -> Revisions {
    let mut collision_count =
        nodeset.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
    let desired_name = revision_name(nodeset, &hash(collision_count));
    let is_desired = |revision: &ControllerRevision| {
        revision.name_any() == desired_name && is_equivalent(data_of(revision), data)
    };
    let history = history(nodeset, listed, is_desired);
    let latest = history.last();
    let number = latest.map_or(1, |latest| latest.revision.revision.saturating_add(1));
    let equal = history.iter().rev().find_map(|stored| {
        is_equivalent(data_of(stored.revision), data).then_some(stored).zip(stored.hash.as_deref())
    });
    let (hash, change) = if let Some((current, hash)) = equal {
        let is_latest = latest.is_some_and(|latest| latest.name == current.name);
        let step = RevisionStep::Renumber { name: current.name.clone(), number };
        (hash.to_owned(), (!is_latest && !current.is_terminating).then_some(step))
    } else {
        let is_free = |count: &i32| {
            let hash = hash(*count);
            let name = revision_name(nodeset, &hash);
            !history.iter().any(|stored| stored.is_known_by(&hash))
                && !listed.iter().any(|other| other.name_any() == name)
        };
        collision_count = (collision_count..i32::MAX).find(is_free).unwrap_or(collision_count);
        let hash = hash(collision_count);
        (hash.clone(), Some(RevisionStep::Create { hash, number }))
    };
    let is_needed = |stored: &Stored| {
        let is_current = equal.is_some_and(|(current, _)| current.name == stored.name);
        is_current || stored.hash.as_ref().is_some_and(|hash| hashes_in_use.contains(hash))
    };
    let surplus = surplus(&history, is_needed, nodeset.spec.revision_history_limit);
    let steps = adopt_and_label(nodeset, &history, &surplus)
        .chain(change)
        .chain(surplus.iter().map(|stored| RevisionStep::Delete(stored.name.clone())))
        .collect();
    Revisions { hash, steps, collision_count }
}

/// A stored revision.
struct Stored<'a> {
    revision: &'a ControllerRevision,
    name: String,
    /// `None` if it has no hash that fits into a pod label.
    hash: Option<String>,
    is_orphan: bool,
    is_terminating: bool,
}

impl Stored<'_> {
    /// Whether its label or name contains this hash.
    fn is_known_by(&self, hash: &str) -> bool {
        self.hash.as_deref() == Some(hash) || self.name.rsplit('-').next() == Some(hash)
    }
}

/// The content of a revision.
fn data_of(revision: &ControllerRevision) -> &Value {
    revision.data.as_ref().map_or(&Value::Null, |data| &data.0)
}

/// Revisions of this NodeSet, and orphans that have its labels or are the desired revision; latest last.
fn history<'a>(
    nodeset: &NodeSet,
    listed: &'a [Arc<ControllerRevision>],
    is_desired: impl Fn(&ControllerRevision) -> bool,
) -> Vec<Stored<'a>> {
    let selector = selector_labels(nodeset);
    let mut history: Vec<_> = listed
        .iter()
        .filter_map(|revision| {
            let is_orphan = match control_of(&revision.metadata, nodeset) {
                Control::Ours => false,
                Control::Orphan if has_labels(revision, &selector) || is_desired(revision) => true,
                Control::Orphan | Control::Foreign(_) => return None,
            };
            Some(Stored {
                revision,
                name: revision.name_any(),
                hash: hash_of(revision),
                is_orphan,
                is_terminating: revision.metadata.deletion_timestamp.is_some(),
            })
        })
        .collect();
    history.sort_by_key(|stored| {
        let created = stored.revision.creation_timestamp().map(|time| time.0);
        (stored.revision.revision, created, stored.name.clone())
    });
    history
}

fn has_labels(revision: &ControllerRevision, labels: &Labels) -> bool {
    labels.iter().all(|(key, value)| revision.labels().get(key) == Some(value))
}

/// The hash of a revision: from its label, else from the end of its name.
fn hash_of(revision: &ControllerRevision) -> Option<String> {
    let label = revision.labels().get(REVISION_HASH).filter(|hash| !hash.is_empty());
    let hash = label.cloned().or_else(|| revision.name_any().rsplit('-').next().map(str::to_owned))?;
    (hash.len() <= LONGEST_LABEL).then_some(hash)
}

/// The oldest unused revisions beyond the history limit.
fn surplus<'a, 'b>(
    history: &'b [Stored<'a>],
    is_needed: impl Fn(&Stored<'_>) -> bool,
    limit: i32,
) -> Vec<&'b Stored<'a>> {
    let mut unused: Vec<_> = history
        .iter()
        .filter(|stored| !stored.is_orphan && !stored.is_terminating && !is_needed(stored))
        .collect();
    let kept = usize::try_from(limit).unwrap_or_default();
    unused.truncate(unused.len().saturating_sub(kept));
    unused
}

/// Adoptions and missing labels of the revisions that stay.
fn adopt_and_label<'b>(
    nodeset: &NodeSet,
    history: &'b [Stored<'_>],
    surplus: &[&'b Stored<'_>],
) -> impl Iterator<Item = RevisionStep> + use<'b> {
    let selector = selector_labels(nodeset);
    let deleted: BTreeSet<_> = surplus.iter().map(|stored| stored.name.clone()).collect();
    let staying =
        history.iter().filter(move |stored| !stored.is_terminating && !deleted.contains(&stored.name));
    staying.flat_map(move |stored| {
        let adopt = stored.is_orphan.then(|| RevisionStep::Adopt(stored.name.clone()));
        let is_labelled = has_labels(stored.revision, &selector)
            && stored.revision.labels().get(REVISION_HASH) == stored.hash.as_ref();
        let hash = stored.hash.clone().filter(|_| !is_labelled);
        adopt.into_iter().chain(hash.map(|hash| RevisionStep::Label { name: stored.name.clone(), hash }))
    })
}

#[cfg(test)]
mod tests;
