//! Tells when the watch of pods has caught up with what the last batch of a NodeSet did, so that the next one may be
//! planned from the cache.
//!
//! The stream shows all versions of all pods in the order in which they came to be, save for a new list. So a result that
//! came through it proves that everything before it came too. What proves nothing: that a pod is absent (a cache that is
//! behind never held it), and a write that changed nothing (its version may be older than the view it was planned from).

use expectations::Basis;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait for the results of a batch before everything is read live.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long what came through the stream is remembered: an event may overtake the answer to its write, and a batch ends
/// well within this time.
const MEMORY: Duration = Duration::from_secs(30);
/// How much of it is remembered at most.
const CAPACITY: usize = 20_000;

/// Something that the stream shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sight {
    /// Exactly this version of a pod.
    Version { uid: String, version: String },
    /// That a pod is ending, or has ended.
    End { uid: String },
}

/// What a batch did to pods.
#[derive(Debug, Default)]
pub struct Results {
    expected: BTreeSet<Sight>,
    lost: bool,
}

impl Results {
    /// A pod was written, and has this version now.
    pub fn written(&mut self, uid: &str, version: &str) {
        self.expected.insert(Sight::Version { uid: uid.to_owned(), version: version.to_owned() });
    }

    /// A pod was deleted.
    pub fn deleted(&mut self, uid: &str) {
        self.expected.insert(Sight::End { uid: uid.to_owned() });
    }

    /// Something was done to a pod that the stream cannot be asked for.
    pub fn lose_track(&mut self) {
        self.lost = true;
    }
}

/// What the cache of pods may be said to contain, for one NodeSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Everything up to here, if it is read after this was told.
    Everything(Basis),
    /// Not yet everything; an event will tell, or everything has to be read live after this time.
    Waiting(Duration),
    /// Nobody knows.
    Unknown,
}

/// The last batch of each NodeSet, and what came through the watch of pods. One for each such watch.
#[derive(Debug, Default)]
pub struct Bases(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By UID of the NodeSet.
    closed: BTreeMap<String, Closed>,
    /// Whose batch waits for it.
    awaited: BTreeMap<Sight, String>,
    /// What came through the stream, and when.
    recent: VecDeque<(Instant, Sight)>,
}

/// A batch that has ended.
#[derive(Debug)]
struct Closed {
    basis: Basis,
    at: Instant,
    unseen: BTreeSet<Sight>,
    /// A list of all pods was begun since.
    relisting: bool,
}

impl Bases {
    /// An event of the watch, after the cache took it.
    pub fn observe(&self, event: &Event<Pod>) {
        let mut inner = self.lock();
        match event {
            Event::Apply(pod) => {
                let uid = pod.uid().unwrap_or_default();
                if pod.metadata.deletion_timestamp.is_some() {
                    inner.saw(Sight::End { uid: uid.clone() });
                }
                inner.saw(Sight::Version { uid, version: pod.resource_version().unwrap_or_default() });
            }
            Event::Delete(pod) => inner.saw(Sight::End { uid: pod.uid().unwrap_or_default() }),
            Event::Init => inner.closed.values_mut().for_each(|closed| closed.relisting = true),
            // The cache shows a list when it is complete.
            Event::InitApply(_) => {}
            Event::InitDone => inner.listed(),
        }
    }

    /// What the cache contains for a NodeSet.
    pub fn seen(&self, nodeset_uid: &str) -> Seen {
        let inner = self.lock();
        let Some(closed) = inner.closed.get(nodeset_uid) else { return Seen::Unknown };
        let waited = closed.at.elapsed();
        match PATIENCE.checked_sub(waited) {
            _ if closed.unseen.is_empty() => Seen::Everything(closed.basis.clone()),
            Some(left) if !left.is_zero() => Seen::Waiting(left),
            _ => Seen::Unknown,
        }
    }

    /// Nothing is known of a NodeSet any more: a batch of it begins, it is gone, or another replica's.
    pub fn forget(&self, nodeset_uid: &str) {
        self.lock().forget(nodeset_uid);
    }

    /// A batch of a NodeSet ended with these results.
    pub(super) fn close(&self, nodeset_uid: &str, basis: Basis, results: Results) {
        let mut inner = self.lock();
        inner.forget(nodeset_uid);
        if results.lost || results.expected.is_empty() {
            return;
        }
        let mut unseen = results.expected;
        for (_, sight) in &inner.recent {
            unseen.remove(sight);
        }
        inner.awaited.extend(unseen.iter().map(|sight| (sight.clone(), nodeset_uid.to_owned())));
        let closed = Closed { basis, at: Instant::now(), unseen, relisting: false };
        inner.closed.insert(nodeset_uid.to_owned(), closed);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn saw(&mut self, sight: Sight) {
        if let Some(nodeset_uid) = self.awaited.remove(&sight)
            && let Some(closed) = self.closed.get_mut(&nodeset_uid)
        {
            closed.unseen.remove(&sight);
        }
        let now = Instant::now();
        let is_old = |(at, _): &(Instant, Sight)| now - *at > MEMORY;
        while self.recent.len() >= CAPACITY || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, sight));
    }

    /// A list begun after a batch had ended shows all its results.
    fn listed(&mut self) {
        for closed in self.closed.values_mut().filter(|closed| closed.relisting) {
            for sight in std::mem::take(&mut closed.unseen) {
                self.awaited.remove(&sight);
            }
        }
    }

    fn forget(&mut self, nodeset_uid: &str) {
        for sight in self.closed.remove(nodeset_uid).into_iter().flat_map(|closed| closed.unseen) {
            self.awaited.remove(&sight);
        }
    }
}
