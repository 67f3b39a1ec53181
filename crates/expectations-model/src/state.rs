//! The state of a whole cluster, and the invariants that a grant or the landing of a write may break.

use crate::guard::Guard;
use crate::invariant::Invariant;
use crate::replica::{Batch, BatchKey, Phase, Replica, Request, Results};
use crate::scenario::{Faults, Scenario, Start};
use crate::service::Service;
use crate::ticks::Tick;
use crate::world::{Effect, Landed, Node, Ordinals, Uid, Worker, World};
use expectations::Predecessor;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub now: Tick,
    pub world: World,
    /// The leader, or the last one while there is none.
    pub leader: Service,
    /// A leader that answers after the end of its term, because a guard is removed.
    pub old_leader: Option<Service>,
    /// Number of leaders so far.
    pub epochs: u8,
    pub replicas: Vec<Replica>,
    /// Number of batches requested.
    pub batches: BatchKey,
    /// Late copies of requests.
    pub copies: Vec<Request>,
    /// Unanswered writes that may still land.
    pub writes: Vec<Write>,
    pub faults: Faults,
    /// Number of steps of the user so far.
    pub user_steps: usize,
    pub history: History,
    pub violation: Option<Invariant>,
}

/// A write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub effect: Effect,
    pub batch: BatchKey,
    pub uid: Uid,
    pub wanted: Ordinals,
    /// When the deadline of the batch was checked; `None` if the process froze after that, and sends at any time.
    pub checked_at: Option<Tick>,
    /// A user undrained the node after the batch had read it.
    pub is_excused: bool,
    /// Another batch sent an undrain of the node.
    pub is_node_undrained: bool,
}

impl Write {
    /// A write of a batch that is sent now.
    pub fn new(effect: Effect, batch: &Batch, now: Tick) -> Self {
        Self {
            effect,
            batch: batch.key,
            uid: batch.uid,
            wanted: batch.wanted,
            checked_at: Some(now),
            is_excused: false,
            is_node_undrained: false,
        }
    }

    pub fn can_land(&self, now: Tick, scenario: &Scenario) -> bool {
        self.checked_at.is_none_or(|checked_at| now <= checked_at + scenario.scale.landing())
    }
}

/// What the invariants need to know of the past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// Batches that may still write, and whether a later batch was granted that excludes them.
    pub batches: Vec<(BatchKey, bool)>,
    /// The effects that a batch must know that only creates and is granted half-open: those of batches that ended with
    /// `Done`, and those that had landed when the last batch ran out or the epoch began.
    pub known_half_open: Landed,
    /// UID and generation of the last grant.
    pub generation: Option<(Uid, u8)>,
    /// Pods whose create landed after its batch had ended.
    pub late_pods: Ordinals,
}

impl State {
    pub fn new(scenario: &Scenario, start: &Start) -> Self {
        let Scenario { has_slurm, has_claims, .. } = *scenario;
        let (wanted, running) = (Ordinals::of(start.wanted), Ordinals::of(start.running));
        let mut world = World::new(wanted, running, has_slurm, has_claims);
        for ordinal in start.removed.iter().chain(start.marked) {
            let worker = &mut world.workers[*ordinal];
            worker.node.get_or_insert_default().drained = true;
            worker.pod.iter_mut().for_each(|pod| pod.marked = true);
        }
        Self {
            now: 0,
            leader: Service::start(0, Predecessor::Settled, 0, scenario),
            old_leader: None,
            epochs: 1,
            replicas: (0..scenario.replicas)
                .map(|index| Replica::new(&world, index < scenario.caches))
                .collect(),
            batches: 0,
            world,
            copies: Vec::new(),
            writes: Vec::new(),
            faults: scenario.faults,
            user_steps: 0,
            history: History::default(),
            violation: None,
        }
    }

    /// The service opened a batch.
    pub fn note_grant(&mut self, request: &Request, is_half_open: bool, scenario: &Scenario) {
        let is_shared = request.ops.only_creates() && is_half_open;
        let required = if is_shared { self.history.known_half_open } else { self.world.landed };
        let is_older = |(uid, generation)| uid == request.uid && request.generation < generation;
        if !request.contains.contains(required) || self.history.generation.is_some_and(is_older) {
            self.violate(Invariant::Completeness, scenario);
        }
        if !is_shared {
            self.history.batches.iter_mut().for_each(|(_, is_excluded)| *is_excluded = true);
        }
        if !request.ops.only_creates() {
            self.history.late_pods = Ordinals::default();
        }
        self.history.generation = Some((request.uid, request.generation));
        self.history.batches.push((request.batch, false));
    }

    /// A batch ran out, or an epoch began.
    pub fn note_unknown_end(&mut self) {
        self.history.known_half_open = self.world.landed;
    }

    /// A batch ended with `Done`.
    pub fn note_done(&mut self, results: &Results) {
        let known = &mut self.history.known_half_open;
        known.on_pods = known.on_pods.max(results.last_on_pods.unwrap_or_default());
        known.on_slurm = known.on_slurm.max(results.last_on_slurm);
    }

    /// Forgets batches that cannot write any more, since they do not distinguish states.
    pub fn forget_ended_batches(&mut self) {
        let Self { history, replicas, writes, copies, .. } = self;
        history.batches.retain(|(key, _)| {
            let is_of_replica = |replica: &Replica| match &replica.phase {
                Phase::Idle => false,
                Phase::Asking(request) => request.batch == *key,
                Phase::Holding(batch) => batch.key == *key,
            };
            replicas.iter().any(is_of_replica)
                || writes.iter().any(|write| write.batch == *key)
                || copies.iter().any(|copy| copy.batch == *key)
        });
    }

    /// A write reaches the API server or Slurm. Returns whether it took effect.
    pub fn land(&mut self, write: &Write, scenario: &Scenario) -> bool {
        let before = write.effect.ordinal().map(|ordinal| self.world.workers[ordinal]).unwrap_or_default();
        let has_landed = self.world.land(write.effect, write.uid, scenario.guards);
        let is_second_pod = matches!(write.effect, Effect::Create(_)) && !has_landed;
        if is_second_pod && !scenario.guards.has(Guard::FixedName) {
            self.violate(Invariant::Names, scenario);
        }
        if has_landed {
            self.check_landing(write, &before, scenario);
        }
        has_landed
    }

    fn check_landing(&mut self, write: &Write, before: &Worker, scenario: &Scenario) {
        if self.history.batches.contains(&(write.batch, true)) {
            self.violate(Invariant::Exclusion, scenario);
        }
        let is_idle = before.node.is_none_or(Node::is_drained_and_idle) || write.is_excused;
        match write.effect {
            Effect::Create(ordinal) => self.check_create(ordinal, write, before, scenario),
            Effect::Delete(ordinal, version) => {
                self.history.late_pods.remove(ordinal);
                if before.pod.is_none_or(|pod| pod.version != version) || write.is_node_undrained {
                    self.violate(Invariant::Mark, scenario);
                }
                if !is_idle {
                    self.violate(Invariant::Jobs, scenario);
                }
                if write.wanted.contains(ordinal) {
                    self.violate(Invariant::Budget, scenario);
                }
            }
            Effect::SetDown(_) if !is_idle => self.violate(Invariant::Jobs, scenario),
            Effect::SetDown(_)
            | Effect::Mark(..)
            | Effect::Unmark(..)
            | Effect::GiveUpClaim(..)
            | Effect::KeepClaim(..)
            | Effect::Drain(_)
            | Effect::Undrain(_)
            | Effect::RemoveFinalizer(_) => {}
        }
    }

    fn check_create(&mut self, ordinal: usize, write: &Write, before: &Worker, scenario: &Scenario) {
        if !self.world.has_nodeset(write.uid) {
            self.violate(Invariant::Finalizer, scenario);
        }
        if before.has_stale_claim() {
            self.violate(Invariant::Claims, scenario);
        }
        if self.leader.open != Some(write.batch) {
            self.history.late_pods.insert(ordinal);
            return;
        }
        self.history.late_pods.remove(ordinal);
        if self.world.pods_of(write.uid).minus(self.history.late_pods).count() > write.wanted.count() {
            self.violate(Invariant::Budget, scenario);
        }
    }

    fn violate(&mut self, invariant: Invariant, scenario: &Scenario) {
        if scenario.invariants.contains(&invariant) {
            self.violation.get_or_insert(invariant);
        }
    }
}
