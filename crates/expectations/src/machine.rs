//! The state machine of the service, without clock, network and leader election: decides which batch may begin.
//!
//! Every call carries the time since an arbitrary fixed moment, read after the message was received. A
//! [`tick`](Machine::tick) is due about every second; only the membership depends on it.
//!
//! A NodeSet is **open** from the grant of a batch until the batch ends or runs out. The outcome of a batch that ran
//! out is unknown: it never counts as done. A batch that only creates runs out after the lease already and leaves its
//! NodeSet **half open** until the hold is over and its last write must have landed; until then only creates are
//! granted. A new epoch knows no batches of the previous one, so it starts with every NodeSet half open.
//!
//! Every end of a batch or of half-open time gives the NodeSet a new number, which makes older views stale.

mod budget;
mod event_counts;
mod members;
mod record;
mod records;
mod status;
#[cfg(test)]
mod tests;
mod waits;

use crate::messages::{
    Answer, Basis, BatchId, Begin, Epoch, Granted, Heartbeat, Membership, Ops, WaitReason,
};
use crate::ownership::owner_of;
use crate::timing::Timing;
use budget::Budget;
use event_counts::EventCounts;
use members::Members;
use record::{GrantedBatch, Record};
use records::Records;
use std::time::Duration;
use waits::build_wait;

/// Maximum number of effects in one batch. Creates and deletes are cut to it; the caller of the machine refuses a
/// request with more effects of other kinds.
pub const OPS_PER_BATCH: u32 = 1000;

/// Parameters of one epoch of the service.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Random identity of this epoch.
    pub epoch: Epoch,
    /// Constants shared with the replicas. Not checked here: see [`Timing::check`].
    pub timing: Timing,
    /// Limits of effects in flight.
    pub limits: Limits,
    /// How the previous epoch ended.
    pub predecessor: Predecessor,
}

/// How many effects all replicas together may have in flight: granted, in batches that have not ended.
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

/// How the previous epoch of the service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// In an unknown way, or there was none: writes of its batches may still land.
    Unknown,
    /// [Settled](Machine::is_settled), as it recorded when it released its Lease.
    Settled,
}

/// The state of the service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    epoch: Epoch,
    timing: Timing,
    now: Duration,
    /// When the half-open time at the start of the epoch ends.
    epoch_half_open_until: Duration,
    stopping: bool,
    members: Members,
    records: Records,
    creates: Budget,
    deletes: Budget,
    event_counts: EventCounts,
}

impl Machine {
    /// A machine that leads from `now` on.
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
            event_counts: EventCounts::default(),
        }
    }

    /// Answers `Begin`.
    pub fn begin(&mut self, request: &Begin, now: Duration) -> Answer {
        self.advance(now);
        if let Some(granted) = self.open_grant(request) {
            self.event_counts.0.repeated += 1;
            return Answer::Granted(granted);
        }
        let answer = self.answer(request);
        self.event_counts.count_answer(&answer);
        answer
    }

    /// Ends a batch. Returns the basis that its end created, and the same again until the number changes; `None` if the
    /// batch ran out or is unknown.
    pub fn done(&mut self, batch: &BatchId, now: Duration) -> Option<Basis> {
        self.advance(now);
        let nodeset = self.records.nodeset_of(batch)?.clone();
        let mut record = self.records.remove(&nodeset)?;
        let (number, ended) = record.close(batch, self.now, self.records.numbers());
        self.records.insert(nodeset, record);
        if let Some(ended) = ended {
            self.release(ended.granted);
            self.event_counts.0.closed += 1;
        }
        Some(self.basis(number))
    }

    /// Extends the membership of a replica, or ends it if the replica leaves.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Duration) {
        self.advance(now);
        self.members.heartbeat(heartbeat, self.now, self.timing.dead_after);
    }

    /// Advances the time and removes replicas without recent heartbeats. A long gap between two ticks means that the
    /// service itself was paused and could not receive heartbeats.
    pub fn tick(&mut self, now: Duration) {
        self.advance(now);
        self.members.tick(self.now, self.timing.dead_after);
    }

    /// The live replicas, and the timing that all of them use.
    pub fn membership(&self) -> Membership {
        Membership {
            epoch: self.epoch.clone(),
            version: self.members.version(),
            live: self.members.live().cloned().collect(),
            lease: self.timing.lease,
            grace: self.timing.grace,
        }
    }

    /// The version of the [membership](Self::membership).
    pub fn membership_version(&self) -> u64 {
        self.members.version()
    }

    /// Stops granting batches, permanently.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether no write of any batch can land any more, now or later. A successor that knows this starts with
    /// [`Predecessor::Settled`].
    pub fn is_settled(&mut self, now: Duration) -> bool {
        self.advance(now);
        self.stopping && self.epoch_half_open_until <= self.now && self.records.all_settled()
    }

    /// Time until the half-open time at the start of the epoch ends, as of the last call.
    pub fn half_open_left(&self) -> Duration {
        self.epoch_half_open_until.saturating_sub(self.now)
    }

    /// Advances the time: batches run out, half-open times end, records and places expire. Time never goes back.
    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        for batch in self.records.advance(self.now) {
            self.release(batch.granted);
            self.event_counts.0.ran_out += 1;
        }
        self.creates.expire_places(self.now);
        self.deletes.expire_places(self.now);
    }

    /// The grant of the requested batch if it is open already.
    fn open_grant(&self, request: &Begin) -> Option<Granted> {
        let open = self.records.get(&request.nodeset)?.open.as_ref()?;
        (open.id == request.batch).then_some(open.granted)
    }

    /// The answer to a request whose batch is not open.
    fn answer(&mut self, request: &Begin) -> Answer {
        let Begin { nodeset, ops, .. } = request;
        if owner_of(&request.cluster_key, self.members.live()) != Some(&request.batch.replica) {
            return Answer::NotOwner(self.membership());
        }
        self.creates.keep_place(nodeset, ops.creates, self.now);
        self.deletes.keep_place(nodeset, ops.deletes, self.now);
        let mut record = match self.records.remove(nodeset) {
            Some(record) => record,
            None => self.build_record(request),
        };
        let answer = self.answer_owner(&mut record, request);
        record.set_answer(&answer, self.now);
        self.records.insert(nodeset.clone(), record);
        answer
    }

    fn build_record(&mut self, request: &Begin) -> Box<Record> {
        let half_open_until = Some(self.epoch_half_open_until).filter(|until| self.now < *until);
        Box::new(Record::new(&request.uid, half_open_until, self.now, self.records.numbers()))
    }

    /// The answer to the owner of a NodeSet. The order of the checks is part of the protocol.
    fn answer_owner(&mut self, record: &mut Record, request: &Begin) -> Answer {
        if let Some(reason) = self.reason_to_wait(record, request) {
            let half_open_left = record.half_open_until.unwrap_or_default().saturating_sub(self.now);
            return Answer::Wait(build_wait(&request.nodeset, reason, half_open_left));
        }
        record.replace_if_of_another_uid(&request.uid, self.records.numbers());
        let basis = self.basis(record.number);
        if request.basis.as_ref() != Some(&basis) || request.generation < record.generation {
            return Answer::NeedFresh(basis);
        }
        self.grant(record, request)
    }

    /// Why a batch cannot begin now, independent of the view it was planned from.
    fn reason_to_wait(&self, record: &Record, request: &Begin) -> Option<WaitReason> {
        // A batch id that a replica uses twice must not open two batches.
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

    /// Opens the batch with as many creates and deletes as the budgets allow, unless nothing of it can be granted.
    fn grant(&mut self, record: &mut Record, request: &Begin) -> Answer {
        let Begin { nodeset, ops, .. } = request;
        let room = OPS_PER_BATCH.saturating_sub(ops.others);
        let creates = self.creates.acquire(nodeset, ops.creates.min(room), self.now);
        let deletes = self.deletes.acquire(nodeset, ops.deletes.min(room - creates), self.now);
        let is_nothing_granted = *ops != Ops::default() && creates == 0 && deletes == 0 && ops.others == 0;
        if is_nothing_granted {
            return Answer::Wait(build_wait(nodeset, WaitReason::Budget, Duration::ZERO));
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
