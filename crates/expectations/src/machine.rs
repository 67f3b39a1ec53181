//! Decides which batch may begin: the whole service but its clock, its network and its lead.
//!
//! Time comes in with every message, as the time since any fixed moment; it is read after the message was received.
//! A [`tick`](Machine::tick) is due about every second; nothing but the membership depends on it.
//!
//! A NodeSet is **open** while a batch of it was granted and neither ended nor ran out. A batch that runs out is
//! unknown, never done. One that only creates runs out after the lease already and leaves its NodeSet **half open** until
//! the hold is over and its last write must have landed; meanwhile only creates are granted. A new epoch knows nothing
//! of the batches of the last one, so it starts with every NodeSet half open.
//!
//! Every end of a batch or of half-open time gives the NodeSet a new number, which is what makes older views stale.

mod budget;
mod members;
mod record;
mod records;
mod status;
mod tally;
#[cfg(test)]
mod tests;
mod waits;

use crate::messages::{
    Answer, Basis, BatchId, Begin, Epoch, Granted, Heartbeat, Membership, Ops, WaitReason,
};
use crate::ownership::owner_of;
use crate::timing::Timing;
use budget::Budget;
use members::Members;
use record::{GrantedBatch, Record};
use records::Records;
use std::time::Duration;
use tally::Tally;
use waits::wait;

/// The most effects that one batch has. Creates and deletes are cut to it; a request with more effects of other kinds is
/// for the service to refuse.
pub const OPS_PER_BATCH: u32 = 1000;

/// What one life of the service is started with.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Random identity of this life.
    pub epoch: Epoch,
    /// Constants shared with the replicas. Not checked here: see [`Timing::check`].
    pub timing: Timing,
    /// How much may be in flight.
    pub limits: Limits,
    /// What is known of the life before.
    pub predecessor: Predecessor,
}

/// How much all replicas together may have in flight: granted, in batches that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Creates of pods.
    pub creates: u32,
    /// Deletes of pods.
    pub deletes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { creates: 500, deletes: 250 }
    }
}

/// How the life of the service before this one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// Somehow, or there was none: its batches may still have effects.
    Unknown,
    /// [Settled](Machine::is_settled), as it wrote down with the release of its lead.
    Settled,
}

/// The state of the service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    epoch: Epoch,
    timing: Timing,
    now: Duration,
    /// When the half-open time ends with which the epoch began.
    epoch_half_open_until: Duration,
    stopping: bool,
    members: Members,
    records: Records,
    creates: Budget,
    deletes: Budget,
    tally: Tally,
}

impl Machine {
    /// A machine that leads since `now`.
    pub fn new(parameters: Parameters, now: Duration) -> Self {
        let Parameters { epoch, timing, limits, predecessor } = parameters;
        let half_open = match predecessor {
            Predecessor::Unknown => timing.hold(),
            Predecessor::Settled => Duration::ZERO,
        };
        Self {
            epoch,
            timing,
            now,
            epoch_half_open_until: now.saturating_add(half_open),
            stopping: false,
            members: Members::new(now),
            records: Records::default(),
            creates: Budget::new(limits.creates),
            deletes: Budget::new(limits.deletes),
            tally: Tally::default(),
        }
    }

    /// Answers a request for a batch.
    pub fn begin(&mut self, request: &Begin, now: Duration) -> Answer {
        self.advance(now);
        if let Some(granted) = self.repeated(request) {
            self.tally.repeated();
            return Answer::Granted(granted);
        }
        let answer = self.answer(request);
        self.tally.answered(&answer);
        answer
    }

    /// Ends a batch. Gives the basis that its end made, again if it is repeated before the number changes; none if the
    /// batch ran out or is unknown.
    pub fn done(&mut self, batch: &BatchId, now: Duration) -> Option<Basis> {
        self.advance(now);
        let nodeset = self.records.nodeset_of(batch)?.clone();
        let mut record = self.records.take_out(&nodeset)?;
        let (number, ended) = record.close(batch, self.now, self.records.numbers());
        self.records.put_in(nodeset, record);
        if let Some(ended) = ended {
            self.release(ended.granted);
            self.tally.closed();
        }
        Some(self.basis(number))
    }

    /// Notes that a replica lives, or leaves.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Duration) {
        self.advance(now);
        self.members.heartbeat(heartbeat, self.now, self.timing.dead_after);
    }

    /// Lets time pass, and drops replicas that fell silent. A long gap between two ticks is a pause of the service
    /// itself, in which it could not hear anybody.
    pub fn tick(&mut self, now: Duration) {
        self.advance(now);
        self.members.tick(self.now, self.timing.dead_after);
    }

    /// Who is live, and the constants that all have to agree on.
    pub fn membership(&self) -> Membership {
        Membership {
            epoch: self.epoch.clone(),
            version: self.members.version(),
            live: self.members.live().cloned().collect(),
            lease: self.timing.lease,
            grace: self.timing.grace,
        }
    }

    /// Grants nothing more, for good.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether no batch can have effects any more, now or later: what a successor has to be told to be
    /// [`Predecessor::Settled`].
    pub fn is_settled(&mut self, now: Duration) -> bool {
        self.advance(now);
        self.stopping && self.epoch_half_open_until <= self.now && self.records.all_settled()
    }

    /// Does what time alone does. A clock that goes back stands still.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for batch in self.records.advance(self.now) {
            self.release(batch.granted);
            self.tally.ran_out();
        }
        self.creates.drop_lost_places(self.now);
        self.deletes.drop_lost_places(self.now);
    }

    fn repeated(&self, request: &Begin) -> Option<Granted> {
        let open = self.records.get(&request.nodeset)?.open.as_ref()?;
        (open.id == request.batch).then_some(open.granted)
    }

    /// The answer to a request that is no repetition of a granted one.
    fn answer(&mut self, request: &Begin) -> Answer {
        let Begin { nodeset, ops, .. } = request;
        if owner_of(&request.cluster_key, self.members.live()) != Some(&request.batch.replica) {
            return Answer::NotOwner(self.membership());
        }
        self.creates.keep_place(nodeset, ops.creates, self.now);
        self.deletes.keep_place(nodeset, ops.deletes, self.now);
        let mut record = match self.records.take_out(nodeset) {
            Some(record) => record,
            None => self.new_record(request),
        };
        let answer = self.answer_owner(&mut record, request);
        record.note(&answer, self.now);
        self.records.put_in(nodeset.clone(), record);
        answer
    }

    fn new_record(&mut self, request: &Begin) -> Box<Record> {
        let half_open_until = Some(self.epoch_half_open_until).filter(|until| self.now < *until);
        Box::new(Record::new(&request.uid, half_open_until, self.now, self.records.numbers()))
    }

    /// The answer to the owner of a NodeSet, whose record was taken out for it. The order of the tests matters.
    fn answer_owner(&mut self, record: &mut Record, request: &Begin) -> Answer {
        if let Some(reason) = self.reason_to_wait(record, request) {
            let rest = record.half_open_until.unwrap_or_default().saturating_sub(self.now);
            return Answer::Wait(wait(&request.nodeset, reason, rest));
        }
        record.replace_if_of_another_uid(&request.uid, self.records.numbers());
        let basis = self.basis(record.number);
        if request.basis.as_ref() != Some(&basis) || request.generation < record.generation {
            return Answer::NeedFresh(basis);
        }
        self.grant(record, request)
    }

    /// What stands in the way of a batch, whatever view it was planned from.
    fn reason_to_wait(&self, record: &Record, request: &Begin) -> Option<WaitReason> {
        // One id never names two batches, whatever a replica asks for.
        let is_id_taken = self.records.nodeset_of(&request.batch).is_some();
        if self.stopping {
            Some(WaitReason::Stopping)
        } else if record.open.is_some() || is_id_taken {
            Some(WaitReason::OpenBatch)
        } else if record.half_open_until.is_some() && !request.ops.only_creates() {
            Some(WaitReason::HalfOpen)
        } else {
            None
        }
    }

    /// Opens the batch with as much as the budgets give, unless that is nothing at all.
    fn grant(&mut self, record: &mut Record, request: &Begin) -> Answer {
        let Begin { nodeset, ops, .. } = request;
        let room = OPS_PER_BATCH.saturating_sub(ops.others);
        let creates = self.creates.take(nodeset, ops.creates.min(room), self.now);
        let deletes = self.deletes.take(nodeset, ops.deletes.min(room - creates), self.now);
        let asked_in_vain = *ops != Ops::default() && creates == 0 && deletes == 0 && ops.others == 0;
        if asked_in_vain {
            return Answer::Wait(wait(nodeset, WaitReason::Budget, Duration::ZERO));
        }
        let granted = Granted { creates, deletes };
        record.open(GrantedBatch::new(request, granted, self.now, &self.timing), request.generation);
        Answer::Granted(granted)
    }

    fn release(&mut self, granted: Granted) {
        self.creates.release(granted.creates);
        self.deletes.release(granted.deletes);
    }

    fn basis(&self, number: u64) -> Basis {
        Basis { epoch: self.epoch.clone(), number }
    }
}
