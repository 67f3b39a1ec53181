//! What the service knows of one NodeSet, and how that changes.

use super::budget::PLACE_LOST_AFTER;
use crate::messages::{Answer, BatchId, Begin, Granted, Wait, WaitReason};
use crate::timing::Timing;
use std::sync::Arc;
use std::time::Duration;

/// A NodeSet without work is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// Numbers of one epoch, none used twice.
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
    /// Of the last grant; below every real one before the first.
    pub generation: i64,
    pub number: u64,
    pub open: Option<GrantedBatch>,
    /// Half-open time does not end under an open batch, so this may lie in the past while there is one.
    pub half_open_until: Option<Duration>,
    /// The batch whose end by its holder made the number.
    closed: Option<BatchId>,
    asked_at: Duration,
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

/// A NodeSet that was told to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    pub reason: WaitReason,
    pub since: Duration,
    /// When it is not expected any more.
    pub until: Duration,
}

/// What time did to a record.
pub enum Passed {
    RanOut(GrantedBatch),
    HalfOpenOver,
    Forgotten,
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
            asked_at: now,
            waiting: None,
        }
    }

    /// When time alone changes the record next.
    pub fn due_at(&self) -> Duration {
        match (&self.open, self.half_open_until) {
            (Some(batch), _) => batch.runs_out_at,
            (None, Some(until)) => until,
            (None, None) => self.asked_at.saturating_add(FORGOTTEN_AFTER),
        }
    }

    /// Changes the record as is due.
    pub fn pass(&mut self, numbers: &mut Numbers) -> Passed {
        if let Some(batch) = self.open.take() {
            self.renumber(numbers);
            if batch.runs_out_at < batch.landed_at {
                self.half_open_until = self.half_open_until.max(Some(batch.landed_at));
            }
            Passed::RanOut(batch)
        } else if self.half_open_until.take().is_some() {
            self.renumber(numbers);
            Passed::HalfOpenOver
        } else {
            Passed::Forgotten
        }
    }

    /// Batches of which the record can say something.
    pub fn batches(&self) -> impl Iterator<Item = &BatchId> {
        self.open.iter().map(|batch| &batch.id).chain(&self.closed)
    }

    /// Whether all writes of all batches must have landed.
    pub fn is_settled(&self) -> bool {
        self.open.is_none() && self.half_open_until.is_none()
    }

    /// Notes that the owner asked, and what it was told.
    pub fn note(&mut self, answer: &Answer, now: Duration) {
        self.asked_at = now;
        self.waiting = match answer {
            Answer::Wait(Wait { after, reason }) => {
                let before = self.waiting.filter(|waiting| waiting.reason == *reason && now < waiting.until);
                Some(Waiting {
                    reason: *reason,
                    since: before.map_or(now, |waiting| waiting.since),
                    until: now.saturating_add(*after).saturating_add(PLACE_LOST_AFTER),
                })
            }
            Answer::Granted(_) | Answer::NeedFresh(_) | Answer::NotOwner(_) => None,
        };
    }

    /// A NodeSet that was made anew shares nothing with its predecessor but the wait for its writes.
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

    /// Ends the open batch, or says again what was said when the last one was closed: the number that its end made, and
    /// what is released. `batch` is one of [these](Self::batches).
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
        // The view of this holder may miss what landed in half-open time, so its basis is void at once.
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
