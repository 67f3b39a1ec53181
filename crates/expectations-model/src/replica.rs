//! A replica: what it remembers between its steps.

use crate::guard::{Guard, Guards};
use crate::plan::View;
use crate::scenario::Scenario;
use crate::ticks::{Tick, at};
use crate::world::{Effect, Landed, Ordinals, Uid, World};
use expectations::{Basis, BatchClock, Ops};

/// Identity of a batch. Replicas count together, which is as good as replica ids and counters of their own.
pub type BatchKey = u8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replica {
    pub known: Option<Known>,
    pub phase: Phase,
    /// The watch caches, if plans are made from them.
    pub cache: Option<View>,
}

impl Replica {
    /// A replica that listed everything.
    pub fn new(world: &World, has_cache: bool) -> Self {
        let cache = has_cache.then(|| View::of(world));
        Self { known: None, phase: Phase::Idle, cache }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    /// Sends `Begin` until it is answered.
    Asking(Request),
    Holding(Batch),
}

/// A basis, and what a view must contain to carry it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Known {
    pub basis: Basis,
    /// The results of the replica's last batch, if its `Closed` brought the basis; the basis of `NeedFresh` needs a live view.
    pub closed: Option<Results>,
}

impl Known {
    /// Whether a plan from the cache may carry the basis.
    pub fn is_in_cache(&self, cache: &View, guards: Guards) -> bool {
        let Some(results) = &self.closed else { return false };
        results.are_in(cache)
            || !guards.has(Guard::ResultsInSnapshot)
            || (!guards.has(Guard::DeleteEvent) && results.are_deletes_absent_from(cache))
    }
}

/// The answers to the writes of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Results {
    /// The position of the last pod result in the watch stream; without one, nothing can be seen.
    pub last_on_pods: Option<u8>,
    /// Slurm has to be read after this many effects on it.
    pub last_on_slurm: u8,
    /// The pods that were deleted, if the batch did nothing else to pods.
    pub only_deleted: Option<Vec<(usize, Uid)>>,
}

impl Results {
    /// Adds an answered write, after it landed or was refused.
    pub fn add(&mut self, effect: Effect, has_landed: bool, world: &World) {
        match effect {
            Effect::Delete(ordinal, version) if has_landed => {
                self.last_on_pods = Some(world.landed.on_pods);
                if let Some(deleted) = &mut self.only_deleted {
                    deleted.push((ordinal, version.uid));
                }
            }
            // The answer names a version of the pod. After AlreadyExists the pod is read.
            Effect::Create(ordinal) | Effect::Mark(ordinal, _) | Effect::Unmark(ordinal, _) => {
                self.only_deleted = None;
                self.last_on_pods = self.last_on_pods.max(world.workers[ordinal].pod.map(|pod| pod.changed));
            }
            Effect::Drain(_) | Effect::Undrain(_) | Effect::SetDown(_) => {
                self.last_on_slurm = world.landed.on_slurm;
            }
            Effect::Delete(..)
            | Effect::GiveUpClaim(..)
            | Effect::KeepClaim(..)
            | Effect::RemoveFinalizer(_) => {}
        }
    }

    fn are_in(&self, cache: &View) -> bool {
        self.last_on_pods.is_some_and(|last| last <= cache.contains.on_pods)
            && self.last_on_slurm <= cache.contains.on_slurm
    }

    fn are_deletes_absent_from(&self, cache: &View) -> bool {
        let is_absent = |(ordinal, uid): &(usize, Uid)| {
            cache.workers[*ordinal].pod.is_none_or(|pod| pod.version.uid != *uid)
        };
        self.only_deleted.as_ref().is_some_and(|deleted| !deleted.is_empty() && deleted.iter().all(is_absent))
    }
}

/// A `Begin` with the plan that it is sent for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub batch: BatchKey,
    pub uid: Uid,
    pub generation: u8,
    pub basis: Option<Basis>,
    pub ops: Ops,
    /// Whether the view was read live.
    pub is_live: bool,
    /// The effects that the view contained.
    pub contains: Landed,
    pub wanted: Ordinals,
    pub effects: Vec<Effect>,
    /// When it was sent for the first time.
    pub sent_at: Tick,
}

/// A granted batch on its holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    pub key: BatchKey,
    pub uid: Uid,
    pub wanted: Ordinals,
    /// What is left of the plan.
    pub effects: Vec<Effect>,
    /// When its `Begin` was sent for the first time.
    pub sent_at: Tick,
    pub results: Results,
    /// The first effect was sent before and not answered; its precondition lets one copy take effect.
    pub is_repeating: bool,
    /// A write was not answered and never will be.
    pub is_uncertain: bool,
}

impl Request {
    /// Whether the replica stops repeating it.
    pub fn is_given_up(&self, now: Tick, scenario: &Scenario) -> bool {
        clock(self.sent_at, scenario).deadline() < at(now)
    }
}

impl Batch {
    /// Whether a write may be sent now.
    pub fn may_send(&self, now: Tick, scenario: &Scenario) -> bool {
        clock(self.sent_at, scenario).may_send(at(now)) || !scenario.guards.has(Guard::Deadline)
    }
}

fn clock(sent_at: Tick, scenario: &Scenario) -> BatchClock {
    BatchClock::start(at(sent_at), &scenario.timing())
}
