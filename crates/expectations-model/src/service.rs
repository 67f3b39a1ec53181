//! The service: the shipped [`Machine`] behind its Lease.
//!
//! Guards inside the machine are taken away from outside: by its parameters, by rewriting the basis of a request, or by
//! moving its clock. The machine has no switches for that.

use crate::guard::{Guard, Guards};
use crate::replica::{BatchKey, Request};
use crate::scenario::Scenario;
use crate::ticks::{TERM, Tick, at};
use crate::world::Uid;
use expectations::{
    Answer, Basis, BatchId, Begin, Epoch, Heartbeat, Machine, NodeSetName, Ops, Parameters, Predecessor,
    ReplicaId, Wait, WaitReason,
};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The only live replica for the service, as which all replicas request batches: the model does not depend on which
/// replica owns the NodeSet, or believes so. A request of another one would be answered `NotOwner` and change nothing.
static OWNER: LazyLock<ReplicaId> = LazyLock::new(|| "owner".into());

const CLUSTER_KEY: &str = "slurm/cluster";

static NODESET: LazyLock<NodeSetName> =
    LazyLock::new(|| NodeSetName { namespace: "slurm".into(), name: "workers".into() });

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Shared by the states that do not change it.
    machine: Arc<Machine>,
    epoch: Epoch,
    /// When the leader stops answering, if its Lease is not renewed any more.
    pub term_end: Option<Tick>,
    /// The leader stops in good order.
    pub is_stopping: bool,
    /// The open batch.
    pub open: Option<BatchKey>,
    /// What the machine's behaviour depends on.
    pub digest: Digest,
    /// How far the machine's clock was moved, to take away half-open time.
    skipped: Tick,
    /// Bases that count as the second one, to take away the new number between them.
    aliases: Vec<(Basis, Basis)>,
}

/// The machine's state as far as it decides about later answers. Times are absolute here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The basis of the record, while no batch is open; the end of a batch makes a new one.
    pub basis: Option<Basis>,
    /// UID and generation of the record.
    pub record: Option<(Uid, u8)>,
    /// When the open batch was granted, and whether it only creates.
    pub granted: Option<(Tick, bool)>,
    /// When half-open time ends, also under an open batch.
    pub half_open_until: Option<Tick>,
}

impl Service {
    /// A leader that starts now.
    pub fn start(epoch: u8, predecessor: Predecessor, now: Tick, scenario: &Scenario) -> Self {
        let epoch = Epoch::from(format!("epoch-{epoch}"));
        let (timing, limits) = (scenario.timing(), scenario.limits);
        let parameters = Parameters { epoch: epoch.clone(), timing, limits, predecessor };
        let mut machine = Machine::new(parameters, at(now));
        machine.heartbeat(&Heartbeat { replica: OWNER.clone(), leaving: false }, at(now));
        let mut service = Self {
            machine: Arc::new(machine),
            epoch,
            term_end: None,
            is_stopping: false,
            open: None,
            digest: Digest::default(),
            skipped: 0,
            aliases: Vec::new(),
        };
        service.refresh(now);
        service
    }

    /// Whether the service answers: its term has not ended.
    pub fn leads(&self, now: Tick) -> bool {
        self.term_end.is_none_or(|end| now < end)
    }

    pub fn is_renewed(&self) -> bool {
        self.term_end.is_none() && !self.is_stopping
    }

    /// The Lease is not renewed any more.
    pub fn stop_renewing(&mut self, now: Tick) {
        self.term_end = Some(now + TERM);
    }

    /// Stops in good order: grants nothing more, and releases the Lease when no write can land any more.
    pub fn stop(&mut self) {
        Arc::make_mut(&mut self.machine).stop();
        self.is_stopping = true;
    }

    /// How the leader ended, for its successor; `None` as long as it leads.
    pub fn ended(&self, now: Tick) -> Option<Predecessor> {
        if self.is_stopping && self.is_settled() {
            Some(Predecessor::Settled)
        } else {
            (!self.leads(now)).then_some(Predecessor::Unknown)
        }
    }

    /// Whether a request is answered `Wait`, which changes nothing: the replica requests again later.
    pub fn is_waiting(&self, request: &Request, guards: Guards) -> bool {
        let is_half_open = self.is_half_open() && guards.has(Guard::HalfOpenAfterLease);
        self.is_stopping
            || self.open.is_some_and(|open| open != request.batch)
            || (is_half_open && !request.ops.only_creates())
    }

    /// Whether time alone changes the service.
    pub fn depends_on_time(&self, now: Tick) -> bool {
        !self.is_settled() || (self.term_end.is_some() && self.leads(now))
    }

    /// Answers `Begin`.
    pub fn begin(&mut self, request: &Request, now: Tick, guards: Guards) -> Answer {
        let mut begin = build_begin(request);
        if let Some(current) = self.replacement(request, &begin, now, guards) {
            begin.basis = Some(current);
        }
        let before = Arc::clone(&self.machine);
        let mut answer = Arc::make_mut(&mut self.machine).begin(&begin, at(now + self.skipped));
        while answer_waits_half_open(&answer) && !guards.has(Guard::HalfOpenAfterLease) {
            self.skipped += 1;
            answer = Arc::make_mut(&mut self.machine).begin(&begin, at(now + self.skipped));
        }
        match answer {
            Answer::Granted(_) => self.digest.record = Some((request.uid, request.generation)),
            Answer::NeedFresh(_) if self.digest.record.is_none_or(|(uid, _)| uid != request.uid) => {
                self.digest.record = Some((request.uid, 0));
            }
            // Changes only the time of the last request, after which the record is forgotten: not in these few ticks.
            Answer::NeedFresh(_) if self.skipped == 0 => self.machine = before,
            Answer::NeedFresh(_) | Answer::NotOwner(_) | Answer::Wait(_) => {}
        }
        self.refresh(now);
        answer
    }

    /// Answers `Done`.
    pub fn done(&mut self, batch: BatchKey, now: Tick, guards: Guards) -> Option<Basis> {
        let time = self.time(now);
        let closed = Arc::make_mut(&mut self.machine).done(&batch_id(batch), time)?;
        if !guards.has(Guard::HalfOpenUnderOpenBatch) || !guards.has(Guard::NumberAtHalfOpenEnd) {
            self.add_alias(Some(closed.clone()), now);
        }
        self.refresh(now);
        Some(closed)
    }

    /// Time has passed: batches run out, half-open time ends.
    pub fn advance(&mut self, now: Tick, guards: Guards) {
        if !guards.has(Guard::NumberAtHalfOpenEnd) {
            let before = self.current_basis(&probe(), now - 1);
            self.add_alias(before, now);
        }
        self.refresh(now);
    }

    /// Whether a basis is the record's, or counts as such.
    pub fn is_current(&self, basis: &Basis) -> bool {
        self.digest.basis.as_ref().is_some_and(|current| {
            basis == current || self.aliases.iter().any(|(alias, of)| alias == basis && of == current)
        })
    }

    /// The record's basis, if a removed guard would have refused the basis of the request.
    fn replacement(&self, request: &Request, begin: &Begin, now: Tick, guards: Guards) -> Option<Basis> {
        if guards == Guards::default() {
            return None;
        }
        let current = self.current_basis(begin, now)?;
        let is_replaced = match &request.basis {
            None => !guards.has(Guard::FreshViewAfterHandOver),
            Some(basis) if basis.epoch != self.epoch => !guards.has(Guard::FreshViewInNewEpoch),
            Some(basis) => {
                (!guards.has(Guard::Number) && request.is_live)
                    || self.aliases.iter().any(|(alias, of)| alias == basis && *of == current)
            }
        };
        is_replaced.then_some(current)
    }

    /// Lets a basis count as the present one.
    fn add_alias(&mut self, basis: Option<Basis>, now: Tick) {
        let current = self.current_basis(&probe(), now);
        if let (Some(basis), Some(current)) = (basis, current)
            && basis != current
        {
            self.aliases.retain(|(_, of)| *of == basis);
            self.aliases.push((basis, current.clone()));
            self.aliases.iter_mut().for_each(|(_, of)| *of = current.clone());
        }
    }

    /// The basis of the record, unless a batch is open.
    fn current_basis(&self, request: &Begin, now: Tick) -> Option<Basis> {
        let probe = Begin { basis: None, ops: Ops::default(), ..request.clone() };
        match Machine::clone(&self.machine).begin(&probe, self.time(now)) {
            Answer::NeedFresh(basis) => Some(basis),
            Answer::Granted(_) | Answer::NotOwner(_) | Answer::Wait(_) => None,
        }
    }

    /// Whether only creates are granted.
    pub fn is_half_open(&self) -> bool {
        self.open.is_none() && self.digest.half_open_until.is_some()
    }

    /// Whether no write can land any more.
    fn is_settled(&self) -> bool {
        self.open.is_none() && self.digest.half_open_until.is_none()
    }

    /// Reads the machine's state.
    fn refresh(&mut self, now: Tick) {
        let time = self.time(now);
        let status = Arc::make_mut(&mut self.machine).status(time);
        let open = status.open.first();
        self.open = open.and_then(|open| BatchKey::try_from(open.batch.counter).ok());
        self.digest.granted = open.map(|open| {
            let is_since = |tick: &Tick| self.time(*tick) + open.age >= self.time(now);
            let only_creates = open.granted.deletes == 0 && open.others == 0;
            ((0..now).find(is_since).unwrap_or(now), only_creates)
        });
        if self.open.is_none() {
            let mut stopped = Machine::clone(&self.machine);
            stopped.stop();
            let is_settled = |tick: &Tick| stopped.clone().is_settled(self.time(*tick));
            self.digest.half_open_until = (now..Tick::MAX).find(is_settled).filter(|tick| *tick > now);
            let uid = self.digest.record.map(|(uid, _)| uid.to_string().into());
            let probe = uid.map(|uid| Begin { uid, ..probe() });
            self.digest.basis = probe.and_then(|probe| self.current_basis(&probe, now));
        }
    }

    fn time(&self, now: Tick) -> Duration {
        at(now + self.skipped)
    }
}

fn answer_waits_half_open(answer: &Answer) -> bool {
    matches!(answer, Answer::Wait(Wait { reason: WaitReason::HalfOpen, .. }))
}

/// A request that reveals the machine's state; a copy of the machine answers it.
fn probe() -> Begin {
    Begin {
        batch: batch_id(BatchKey::MAX),
        cluster_key: CLUSTER_KEY.to_owned(),
        nodeset: NODESET.clone(),
        uid: "1".into(),
        generation: i64::MAX,
        basis: None,
        ops: Ops::default(),
    }
}

fn build_begin(request: &Request) -> Begin {
    Begin {
        batch: batch_id(request.batch),
        cluster_key: CLUSTER_KEY.to_owned(),
        nodeset: NODESET.clone(),
        uid: request.uid.to_string().into(),
        generation: request.generation.into(),
        basis: request.basis.clone(),
        ops: request.ops,
    }
}

fn batch_id(key: BatchKey) -> BatchId {
    BatchId { replica: OWNER.clone(), counter: key.into() }
}
