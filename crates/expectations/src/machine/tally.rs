//! Counts what happened. Two machines that differ in nothing else behave alike, so they are equal: a model checker
//! would otherwise never see the same state twice.

use crate::messages::{Answer, Counters, Wait, WaitReason};
use std::hash::{Hash, Hasher};

#[derive(Clone, Debug, Default)]
pub struct Tally(Counters);

impl PartialEq for Tally {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Tally {}

impl Hash for Tally {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Tally {
    pub fn counters(&self) -> Counters {
        self.0
    }

    pub fn answered(&mut self, answer: &Answer) {
        let Counters { granted, not_owner, need_fresh, .. } = &mut self.0;
        let counter = match answer {
            Answer::Granted(_) => granted,
            Answer::NotOwner(_) => not_owner,
            Answer::NeedFresh(_) => need_fresh,
            Answer::Wait(Wait { reason, .. }) => self.waits(*reason),
        };
        *counter += 1;
    }

    fn waits(&mut self, reason: WaitReason) -> &mut u64 {
        match reason {
            WaitReason::OpenBatch => &mut self.0.wait_open_batch,
            WaitReason::HalfOpen => &mut self.0.wait_half_open,
            WaitReason::Budget => &mut self.0.wait_budget,
            WaitReason::Stopping => &mut self.0.wait_stopping,
        }
    }

    pub fn repeated(&mut self) {
        self.0.repeated += 1;
    }

    pub fn closed(&mut self) {
        self.0.closed += 1;
    }

    pub fn ran_out(&mut self) {
        self.0.ran_out += 1;
    }
}
