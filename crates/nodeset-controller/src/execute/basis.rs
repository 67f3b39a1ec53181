//! Tracks when the watch of pods has caught up with the last batch of a NodeSet, so that the next one may be planned from
//! the cache.
//!
//! Except for a relist, the watch delivers all versions of all pods in order. So a result that was delivered proves that
//! everything before it was delivered. Two things prove nothing: the absence of a pod (a stale cache may never have held
//! it), and a write that changed nothing (its version may be older than the view that it was planned from).

use crate::timing::{CATCH_UP_TIMEOUT, DELIVERED_CHANGES_KEPT};
use expectations::Basis;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How many delivered changes are kept at most.
const CAPACITY: usize = 20_000;

/// A change of a pod that the watch delivers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PodChange {
    /// This version of a pod.
    Version { uid: String, version: String },
    /// The deletion of a pod, started or finished.
    Deleted { uid: String },
}

/// The results of a batch that the watch has to deliver.
#[derive(Debug, Default)]
pub struct Results {
    expected: BTreeSet<PodChange>,
    incomplete: bool,
}

impl Results {
    /// Adds a write: the pod has this version now.
    pub fn written(&mut self, uid: &str, version: &str) {
        self.expected.insert(PodChange::Version { uid: uid.to_owned(), version: version.to_owned() });
    }

    /// Adds a delete.
    pub fn deleted(&mut self, uid: &str) {
        self.expected.insert(PodChange::Deleted { uid: uid.to_owned() });
    }

    /// Adds a write with an unknown result, for which the watch cannot be checked.
    pub fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }
}

/// What the cache of pods is known to contain for one NodeSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenByCache {
    /// Everything up to this basis, if it is read after this answer.
    Everything(Basis),
    /// Not yet everything: a watch event follows, or everything has to be read live after this time.
    Waiting(Duration),
    /// Nothing is known.
    Unknown,
}

impl SeenByCache {
    /// The basis of a plan that is made from the cache; without one the expectations service decides whether a live view is
    /// needed. The error says how long the plan has to wait for the cache at most.
    pub fn basis(self) -> Result<Option<Basis>, Duration> {
        match self {
            Self::Everything(basis) => Ok(Some(basis)),
            Self::Unknown => Ok(None),
            Self::Waiting(left) => Err(left),
        }
    }
}

/// The last batch of each NodeSet, and the recent changes that the watch of pods delivered. One per watch.
#[derive(Debug, Default)]
pub struct Bases(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By UID of the NodeSet.
    closed: BTreeMap<String, Closed>,
    /// The NodeSet UID whose batch waits for a change.
    awaited: BTreeMap<PodChange, String>,
    /// Delivered changes and their time.
    recent: VecDeque<(Instant, PodChange)>,
}

/// A finished batch.
#[derive(Debug)]
struct Closed {
    basis: Basis,
    at: Instant,
    unseen: BTreeSet<PodChange>,
    /// Whether a relist of pods has started since.
    relisting: bool,
}

impl Bases {
    /// Takes an event of the watch, after the cache has stored it.
    pub fn observe(&self, event: &Event<Pod>) {
        let mut inner = self.0.lock();
        match event {
            Event::Apply(pod) => {
                let uid = pod.uid().unwrap_or_default();
                if pod.metadata.deletion_timestamp.is_some() {
                    inner.delivered(PodChange::Deleted { uid: uid.clone() });
                }
                inner.delivered(PodChange::Version {
                    uid,
                    version: pod.resource_version().unwrap_or_default(),
                });
            }
            Event::Delete(pod) => inner.delivered(PodChange::Deleted { uid: pod.uid().unwrap_or_default() }),
            Event::Init => inner.closed.values_mut().for_each(|closed| closed.relisting = true),
            // The cache replaces its content when the list is complete.
            Event::InitApply(_) => {}
            Event::InitDone => inner.listed(),
        }
    }

    /// What the cache is known to contain for a NodeSet.
    pub fn seen(&self, nodeset_uid: &str) -> SeenByCache {
        let inner = self.0.lock();
        let Some(closed) = inner.closed.get(nodeset_uid) else { return SeenByCache::Unknown };
        let waited = closed.at.elapsed();
        match CATCH_UP_TIMEOUT.checked_sub(waited) {
            _ if closed.unseen.is_empty() => SeenByCache::Everything(closed.basis.clone()),
            Some(left) if !left.is_zero() => SeenByCache::Waiting(left),
            _ => SeenByCache::Unknown,
        }
    }

    /// Drops the last batch of a NodeSet: a new one begins, the NodeSet is deleted, or another replica owns it.
    pub fn forget(&self, nodeset_uid: &str) {
        self.0.lock().forget(nodeset_uid);
    }

    /// Records that a batch of a NodeSet ended with these results.
    pub(super) fn close(&self, nodeset_uid: &str, basis: Basis, results: Results) {
        let mut inner = self.0.lock();
        inner.forget(nodeset_uid);
        if results.incomplete || results.expected.is_empty() {
            return;
        }
        let mut unseen = results.expected;
        for (_, change) in &inner.recent {
            unseen.remove(change);
        }
        inner.awaited.extend(unseen.iter().map(|change| (change.clone(), nodeset_uid.to_owned())));
        let closed = Closed { basis, at: Instant::now(), unseen, relisting: false };
        inner.closed.insert(nodeset_uid.to_owned(), closed);
    }
}

impl Inner {
    fn delivered(&mut self, change: PodChange) {
        if let Some(nodeset_uid) = self.awaited.remove(&change)
            && let Some(closed) = self.closed.get_mut(&nodeset_uid)
        {
            closed.unseen.remove(&change);
        }
        let now = Instant::now();
        let is_old = |(at, _): &(Instant, PodChange)| now - *at > DELIVERED_CHANGES_KEPT;
        while self.recent.len() >= CAPACITY || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, change));
    }

    /// A relist that started after a batch had ended contains all its results.
    fn listed(&mut self) {
        for closed in self.closed.values_mut().filter(|closed| closed.relisting) {
            for change in std::mem::take(&mut closed.unseen) {
                self.awaited.remove(&change);
            }
        }
    }

    fn forget(&mut self, nodeset_uid: &str) {
        for change in self.closed.remove(nodeset_uid).into_iter().flat_map(|closed| closed.unseen) {
            self.awaited.remove(&change);
        }
    }
}
