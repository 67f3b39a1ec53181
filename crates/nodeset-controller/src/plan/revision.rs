//! Which revision workers are made from, and what becomes of older ones.
//!
//! A revision is found by what it says, not by how it is written: whoever wrote it, its hash is that of the workers that
//! run, and a new hash replaces all of them.

mod meaning;

use crate::build::{LONGEST_LABEL, revision_name};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use meaning::is_equivalent;
use serde_json::Value;
use slinky_api::labels::{Labels, REVISION_HASH, selector_labels};
use slinky_api::ownership::{Control, control_of};
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What becomes of revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// The hash of the revision that workers are made from.
    pub hash: String,
    /// What to do, in this order.
    pub steps: Vec<RevisionStep>,
    /// How many hashes met another revision's.
    pub collision_count: i32,
}

/// One thing to do about a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevisionStep {
    /// Makes the NodeSet the controller of this one.
    Adopt(String),
    /// Gives this one the labels that it is found by.
    Label {
        /// Its name.
        name: String,
        /// Its hash.
        hash: String,
    },
    /// Makes this one the latest.
    Renumber {
        /// Its name.
        name: String,
        /// Its number.
        number: i64,
    },
    /// Makes a new one.
    Create {
        /// Its hash.
        hash: String,
        /// Its number.
        number: i64,
    },
    /// Deletes this one.
    Delete(String),
}

/// Decides about revisions. Those of others are listed too, because two cannot have one name. `data` is what the current
/// one says, `hashes_in_use` are those of pods, and `hash` gives that of `data` after so many collisions.
pub fn decide(
    nodeset: &NodeSet,
    listed: &[Arc<ControllerRevision>],
    data: &Value,
    hashes_in_use: &BTreeSet<String>,
    hash: impl Fn(i32) -> String,
) -> Revisions {
    let mut collision_count =
        nodeset.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
    let wanted = revision_name(nodeset, &hash(collision_count));
    let is_wanted = |revision: &ControllerRevision| {
        revision.name_any() == wanted && is_equivalent(said_by(revision), data)
    };
    let history = history(nodeset, listed, is_wanted);
    let latest = history.last();
    let number = latest.map_or(1, |latest| latest.revision.revision.saturating_add(1));
    let equal = history.iter().rev().find_map(|past| {
        is_equivalent(said_by(past.revision), data).then_some(past).zip(past.hash.as_deref())
    });
    let (hash, change) = if let Some((current, hash)) = equal {
        let is_latest = latest.is_some_and(|latest| latest.name == current.name);
        let step = RevisionStep::Renumber { name: current.name.clone(), number };
        (hash.to_owned(), (!is_latest && !current.is_going).then_some(step))
    } else {
        let is_free = |count: &i32| {
            let hash = hash(*count);
            let name = revision_name(nodeset, &hash);
            !history.iter().any(|past| past.is_known_by(&hash))
                && !listed.iter().any(|other| other.name_any() == name)
        };
        collision_count = (collision_count..i32::MAX).find(is_free).unwrap_or(collision_count);
        let hash = hash(collision_count);
        (hash.clone(), Some(RevisionStep::Create { hash, number }))
    };
    let is_needed = |past: &Past| {
        let is_current = equal.is_some_and(|(current, _)| current.name == past.name);
        is_current || past.hash.as_ref().is_some_and(|hash| hashes_in_use.contains(hash))
    };
    let surplus = surplus(&history, is_needed, nodeset.spec.revision_history_limit);
    let steps = upkeep(nodeset, &history, &surplus)
        .chain(change)
        .chain(surplus.iter().map(|past| RevisionStep::Delete(past.name.clone())))
        .collect();
    Revisions { hash, steps, collision_count }
}

/// A revision that there is.
struct Past<'a> {
    revision: &'a ControllerRevision,
    name: String,
    /// `None` if it has none that a pod could carry.
    hash: Option<String>,
    is_orphan: bool,
    is_going: bool,
}

impl Past<'_> {
    /// Whether this hash is in its label or in its name.
    fn is_known_by(&self, hash: &str) -> bool {
        self.hash.as_deref() == Some(hash) || self.name.rsplit('-').next() == Some(hash)
    }
}

/// What a revision says.
fn said_by(revision: &ControllerRevision) -> &Value {
    revision.data.as_ref().map_or(&Value::Null, |data| &data.0)
}

/// Revisions that are this NodeSet's, and those that are nobody's and have its labels or are the one that would be made;
/// the latest comes last.
fn history<'a>(
    nodeset: &NodeSet,
    listed: &'a [Arc<ControllerRevision>],
    is_wanted: impl Fn(&ControllerRevision) -> bool,
) -> Vec<Past<'a>> {
    let selector = selector_labels(nodeset);
    let mut history: Vec<_> = listed
        .iter()
        .filter_map(|revision| {
            let is_orphan = match control_of(&revision.metadata, nodeset) {
                Control::Ours => false,
                Control::Orphan if has_labels(revision, &selector) || is_wanted(revision) => true,
                Control::Orphan | Control::Foreign(_) => return None,
            };
            Some(Past {
                revision,
                name: revision.name_any(),
                hash: hash_of(revision),
                is_orphan,
                is_going: revision.metadata.deletion_timestamp.is_some(),
            })
        })
        .collect();
    history.sort_by_key(|past| {
        let created = past.revision.creation_timestamp().map(|time| time.0);
        (past.revision.revision, created, past.name.clone())
    });
    history
}

fn has_labels(revision: &ControllerRevision, labels: &Labels) -> bool {
    labels.iter().all(|(key, value)| revision.labels().get(key) == Some(value))
}

/// The hash of a revision: what its label says, else the end of its name.
fn hash_of(revision: &ControllerRevision) -> Option<String> {
    let label = revision.labels().get(REVISION_HASH).filter(|hash| !hash.is_empty());
    let hash = label.cloned().or_else(|| revision.name_any().rsplit('-').next().map(str::to_owned))?;
    (hash.len() <= LONGEST_LABEL).then_some(hash)
}

/// The oldest of those that nobody needs and that are more than there should be.
fn surplus<'a, 'b>(
    history: &'b [Past<'a>],
    is_needed: impl Fn(&Past<'_>) -> bool,
    limit: i32,
) -> Vec<&'b Past<'a>> {
    let mut idle: Vec<_> =
        history.iter().filter(|past| !past.is_orphan && !past.is_going && !is_needed(past)).collect();
    let kept = usize::try_from(limit).unwrap_or_default();
    idle.truncate(idle.len().saturating_sub(kept));
    idle
}

/// What those that stay lack to be found again.
fn upkeep<'b>(
    nodeset: &NodeSet,
    history: &'b [Past<'_>],
    surplus: &[&'b Past<'_>],
) -> impl Iterator<Item = RevisionStep> + use<'b> {
    let selector = selector_labels(nodeset);
    let leaving: BTreeSet<_> = surplus.iter().map(|past| past.name.clone()).collect();
    let staying = history.iter().filter(move |past| !past.is_going && !leaving.contains(&past.name));
    staying.flat_map(move |past| {
        let adopt = past.is_orphan.then(|| RevisionStep::Adopt(past.name.clone()));
        let is_labelled = has_labels(past.revision, &selector)
            && past.revision.labels().get(REVISION_HASH) == past.hash.as_ref();
        let hash = past.hash.clone().filter(|_| !is_labelled);
        adopt.into_iter().chain(hash.map(|hash| RevisionStep::Label { name: past.name.clone(), hash }))
    })
}

#[cfg(test)]
mod tests;
