//! The service's record of one NodeSet, and its transitions.

use super::budget::PLACE_TIMEOUT;
use crate::messages::{Answer, BatchId, Begin, Granted, Wait, WaitReason};
use crate::timing::Timing;
use std::sync::Arc;
use std::time::Duration;

/// A settled record is dropped after this time without a `Begin`.
const RECORD_TTL: Duration = Duration::from_mins(10);

/// The source of numbers of one epoch; none is used twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers {
    last: u64,
}

impl Numbers {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    uid: Arc<str>,
    /// Generation of the last grant; 0, below every real generation, before the first grant.
    pub generation: i64,
    pub number: u64,
    pub open: Option<GrantedBatch>,
    /// Half-open time does not end while a batch is open, so this may lie in the past then.
    pub half_open_until: Option<Duration>,
    /// The batch whose `Done` assigned the number.
    closed: Option<BatchId>,
    requested_at: Duration,
    pub waiting: Option<Waiting>,
}

/// A batch that was granted and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantedBatch {
    pub id: BatchId,
    pub granted: Granted,
    pub others: u32,
    pub granted_at: Duration,
    runs_out_at: Duration,
    /// When its last write must have landed.
    landed_at: Duration,
}

impl GrantedBatch {
    pub fn new(request: &Begin, granted: Granted, now: Duration, timing: &Timing) -> Self {
        let landed_at = now.saturating_add(timing.hold());
        let runs_out_at =
            if request.ops.only_creates() { now.saturating_add(timing.lease) } else { landed_at };
        Self {
            id: request.batch.clone(),
            granted,
            others: request.ops.others,
            granted_at: now,
            runs_out_at,
            landed_at,
        }
    }
}

/// A NodeSet that was answered `Wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub reason: WaitReason,
    pub since: Duration,
    /// When its retry is not expected any more.
    pub until: Duration,
}

/// A transition of a record that is caused by time alone.
pub enum Expiry {
    BatchRanOut(GrantedBatch),
    HalfOpenEnded,
    RecordExpired,
}

impl Record {
    pub fn new(
        uid: &Arc<str>,
        half_open_until: Option<Duration>,
        now: Duration,
        numbers: &mut Numbers,
    ) -> Self {
        Self {
            uid: Arc::clone(uid),
            generation: 0,
            number: numbers.next(),
            open: None,
            half_open_until,
            closed: None,
            requested_at: now,
            waiting: None,
        }
    }

    /// When [`expire`](Self::expire) is due.
    pub fn due_at(&self) -> Duration {
        match (&self.open, self.half_open_until) {
            (Some(batch), _) => batch.runs_out_at,
            (None, Some(until)) => until,
            (None, None) => self.requested_at.saturating_add(RECORD_TTL),
        }
    }

    /// Performs the transition that is due.
    pub fn expire(&mut self, numbers: &mut Numbers) -> Expiry {
        if let Some(batch) = self.open.take() {
            self.renumber(numbers);
            if batch.runs_out_at < batch.landed_at {
                self.half_open_until = self.half_open_until.max(Some(batch.landed_at));
            }
            Expiry::BatchRanOut(batch)
        } else if self.half_open_until.take().is_some() {
            self.renumber(numbers);
            Expiry::HalfOpenEnded
        } else {
            Expiry::RecordExpired
        }
    }

    /// The open batch and the batch that was closed last.
    pub fn batches(&self) -> impl Iterator<Item = &BatchId> {
        self.open.iter().map(|batch| &batch.id).chain(&self.closed)
    }

    /// Whether every write of every batch must have landed.
    pub fn is_settled(&self) -> bool {
        self.open.is_none() && self.half_open_until.is_none()
    }

    /// Stores the time and the answer of a `Begin` of the owner.
    pub fn set_answer(&mut self, answer: &Answer, now: Duration) {
        self.requested_at = now;
        self.waiting = match answer {
            Answer::Wait(Wait { after, reason }) => {
                let before = self.waiting.filter(|waiting| waiting.reason == *reason && now < waiting.until);
                Some(Waiting {
                    reason: *reason,
                    since: before.map_or(now, |waiting| waiting.since),
                    until: now.saturating_add(*after).saturating_add(PLACE_TIMEOUT),
                })
            }
            Answer::Granted(_) | Answer::NeedFresh(_) | Answer::NotOwner(_) => None,
        };
    }

    /// A re-created NodeSet shares only the open batch and the half-open time with its predecessor.
    pub fn replace_if_of_another_uid(&mut self, uid: &Arc<str>, numbers: &mut Numbers) {
        if self.uid != *uid {
            self.uid = Arc::clone(uid);
            self.generation = 0;
            self.renumber(numbers);
        }
    }

    pub fn open(&mut self, batch: GrantedBatch, generation: i64) {
        self.generation = generation;
        self.open = Some(batch);
    }

    /// Ends the open batch. Returns the number that its end assigned and the batch to release; for the batch that was
    /// closed last, the same number and no batch. `batch` is one of [these](Self::batches).
    pub fn close(
        &mut self,
        batch: &BatchId,
        now: Duration,
        numbers: &mut Numbers,
    ) -> (u64, Option<GrantedBatch>) {
        let Some(ended) = self.open.take_if(|open| open.id == *batch) else {
            return (self.number, None);
        };
        self.renumber(numbers);
        let number = self.number;
        self.closed = Some(batch.clone());
        // The holder's view may miss creates that landed in half-open time, so the basis of this end is stale at once.
        if self.half_open_until.take_if(|until| *until <= now).is_some() {
            self.renumber(numbers);
        }
        (number, Some(ended))
    }

    fn renumber(&mut self, numbers: &mut Numbers) {
        self.number = numbers.next();
        self.closed = None;
    }
}
