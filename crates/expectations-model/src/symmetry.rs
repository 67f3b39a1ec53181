//! Which states count as one.
//!
//! Time, numbers, batch ids and counts of effects only grow, so that no state would be reached twice. But the protocol
//! compares them only with each other: times with the present time, numbers with the record's number, ids for equality.
//! And replicas are alike. So the hash of a state, by which stateright recognises it, is the hash of a state that is
//! rewritten: at time zero, with numbers, ids and counts as small as possible, and of the machine only what its later
//! answers depend on. Replicas are hashed in an order of their own.
//!
//! A test follows states of the same hash, and finds the same successors.

use crate::replica::{Batch, BatchKey, Known, Phase, Replica, Request, Results};
use crate::service::Service;
use crate::state::{History, State, Write};
use crate::ticks::Tick;
use crate::world::{Landed, Worker, World};
use expectations::Basis;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Older requests are past their deadline, and writes have landed, in every scenario.
const OLD: Tick = 4;
/// Numbers of bases that were rewritten.
const STALE: u64 = 0;
const CURRENT: u64 = 1;
const CURRENT_OF_OLD_LEADER: u64 = 2;

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let canonical = Canonical::of(self);
        canonical.world(&self.world).hash(hasher);
        canonical.hash_service(&self.leader, hasher);
        self.old_leader.is_some().hash(hasher);
        self.old_leader.iter().for_each(|service| canonical.hash_service(service, hasher));
        let mut replicas: Vec<u64> =
            self.replicas.iter().map(|replica| fingerprint(&canonical.replica(replica))).collect();
        replicas.sort_unstable();
        replicas.hash(hasher);
        self.copies.iter().for_each(|copy| canonical.request(copy).hash(hasher));
        self.writes.iter().for_each(|write| canonical.write(write).hash(hasher));
        canonical.history(&self.history).hash(hasher);
        (self.faults, self.user_steps, self.epochs, self.violation).hash(hasher);
    }
}

/// A hash that is the same in every run.
pub fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Rewrites the parts of a state.
struct Canonical<'a> {
    state: &'a State,
    /// The effects that every view contains, so that older results are all alike.
    oldest: Landed,
    /// The batches that may still write, in order.
    batches: Vec<BatchKey>,
}

impl<'a> Canonical<'a> {
    fn of(state: &'a State) -> Self {
        let mut canonical = Self { state, oldest: state.history.known_half_open, batches: Vec::new() };
        canonical.batches.extend(state.leader.open);
        canonical.batches.extend(state.old_leader.iter().filter_map(|service| service.open));
        canonical.batches.extend(state.writes.iter().map(|write| write.batch));
        state.copies.iter().for_each(|copy| canonical.add_request(copy));
        for replica in &state.replicas {
            replica.cache.iter().for_each(|cache| canonical.add_landed(cache.contains));
            match &replica.phase {
                Phase::Idle => {}
                Phase::Asking(request) => canonical.add_request(request),
                Phase::Holding(batch) => canonical.batches.push(batch.key),
            }
        }
        canonical.batches.sort_unstable();
        canonical.batches.dedup();
        canonical
    }

    fn add_landed(&mut self, landed: Landed) {
        self.oldest.on_pods = self.oldest.on_pods.min(landed.on_pods);
        self.oldest.on_slurm = self.oldest.on_slurm.min(landed.on_slurm);
    }

    fn add_request(&mut self, request: &Request) {
        self.batches.push(request.batch);
        self.add_landed(request.contains);
    }

    fn batch(&self, batch: BatchKey) -> Option<usize> {
        self.batches.iter().position(|known| *known == batch)
    }

    fn key(&self, batch: BatchKey) -> BatchKey {
        self.batch(batch).and_then(|rank| BatchKey::try_from(rank).ok()).unwrap_or(BatchKey::MAX)
    }

    fn age(&self, since: Tick) -> Tick {
        (self.state.now - since).min(OLD)
    }

    fn landed(&self, landed: Landed) -> Landed {
        Landed {
            on_pods: landed.on_pods.saturating_sub(self.oldest.on_pods),
            on_slurm: landed.on_slurm.saturating_sub(self.oldest.on_slurm),
        }
    }

    fn workers(&self, workers: &mut [Worker]) {
        for pod in workers.iter_mut().filter_map(|worker| worker.pod.as_mut()) {
            pod.changed = pod.changed.saturating_sub(self.oldest.on_pods);
        }
    }

    fn world(&self, world: &World) -> World {
        let mut world = world.clone();
        world.landed = self.landed(world.landed);
        self.workers(&mut world.workers);
        world
    }

    fn hash_service(&self, service: &Service, hasher: &mut impl Hasher) {
        let Service { term_end, is_stopping, open, digest, .. } = service;
        let left = |end: Tick| end.saturating_sub(self.state.now);
        (open.map(|open| self.batch(open)), term_end.map(left), is_stopping, digest.record).hash(hasher);
        digest.granted.map(|(since, only_creates)| (self.age(since), only_creates)).hash(hasher);
        digest.half_open_until.map(left).hash(hasher);
    }

    fn replica(&self, replica: &Replica) -> Replica {
        let mut replica = replica.clone();
        if let Some(Known { basis, closed }) = &mut replica.known {
            *basis = self.basis(basis);
            if let Some(results) = closed {
                self.results(results);
            }
        }
        if let Some(cache) = &mut replica.cache {
            cache.contains = self.landed(cache.contains);
            self.workers(&mut cache.workers);
        }
        match &mut replica.phase {
            Phase::Idle => {}
            Phase::Asking(request) => *request = self.request(request),
            Phase::Holding(Batch { key, sent_at, results, .. }) => {
                (*key, *sent_at) = (self.key(*key), self.age(*sent_at));
                self.results(results);
            }
        }
        replica
    }

    fn results(&self, results: &mut Results) {
        results.last_on_pods = results.last_on_pods.map(|last| last.saturating_sub(self.oldest.on_pods));
        results.last_on_slurm = results.last_on_slurm.saturating_sub(self.oldest.on_slurm);
    }

    fn request(&self, request: &Request) -> Request {
        Request {
            batch: self.key(request.batch),
            basis: request.basis.as_ref().map(|basis| self.basis(basis)),
            contains: self.landed(request.contains),
            sent_at: self.age(request.sent_at),
            ..request.clone()
        }
    }

    fn basis(&self, basis: &Basis) -> Basis {
        let is_of_old_leader =
            || self.state.old_leader.as_ref().is_some_and(|service| service.is_current(basis));
        let number = match self.state.leader.is_current(basis) {
            true => CURRENT,
            false if is_of_old_leader() => CURRENT_OF_OLD_LEADER,
            false => STALE,
        };
        Basis { epoch: basis.epoch.clone(), number }
    }

    fn write(&self, write: &Write) -> Write {
        Write {
            batch: self.key(write.batch),
            checked_at: write.checked_at.map(|checked_at| self.age(checked_at)),
            ..write.clone()
        }
    }

    fn history(&self, history: &History) -> History {
        let batches = history.batches.iter().map(|(batch, is_excluded)| (self.key(*batch), *is_excluded));
        History {
            batches: batches.collect(),
            known_half_open: self.landed(history.known_half_open),
            ..history.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;
    use crate::scenario::Scenario;
    use crate::scenarios;
    use crate::state::State;
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    fn successors(state: &State, scenario: &Scenario) -> Vec<State> {
        let mut actions = Vec::new();
        state.possible_actions(scenario, &mut actions);
        actions.into_iter().map(|action| state.after(action, scenario)).collect()
    }

    /// If states of one hash have successors of the same hashes, nothing is missed by following only one of them.
    #[test]
    fn states_of_one_hash_have_successors_of_the_same_hashes() {
        scenarios::all().iter().for_each(compare_successors);
    }

    fn compare_successors(scenario: &Scenario) {
        let mut known: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut queue: VecDeque<State> =
            scenario.starts.iter().map(|start| State::new(scenario, start)).collect();
        let mut compared = 0;
        while let Some(state) = queue.pop_front() {
            let next = successors(&state, scenario);
            let hashes: BTreeSet<u64> = next.iter().map(fingerprint).collect();
            if let Some(before) = known.get(&fingerprint(&state)) {
                compared += 1;
                assert_eq!(*before, hashes, "{state:#?}");
            } else {
                known.insert(fingerprint(&state), hashes);
                if known.len() < 4000 {
                    queue.extend(next);
                }
            }
        }
        assert!(compared > 1000, "{}: only {compared} states were reached twice", scenario.name);
    }
}
