//! Counts the events of an epoch. The counts do not affect the machine's behaviour, so machines that differ only in them
//! are equal: a model checker would otherwise never reach the same state twice.

use crate::messages::{Answer, Counters, Wait, WaitReason};
use std::hash::{Hash, Hasher};

#[derive(Clone, Debug, Default)]
pub struct EventCounts(Counters);

impl PartialEq for EventCounts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for EventCounts {}

impl Hash for EventCounts {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl EventCounts {
    pub fn counters(&self) -> Counters {
        self.0
    }

    pub fn count_answer(&mut self, answer: &Answer) {
        let Counters { granted, not_owner, need_fresh, .. } = &mut self.0;
        let counter = match answer {
            Answer::Granted(_) => granted,
            Answer::NotOwner(_) => not_owner,
            Answer::NeedFresh(_) => need_fresh,
            Answer::Wait(Wait { reason, .. }) => self.wait_counter(*reason),
        };
        *counter += 1;
    }

    fn wait_counter(&mut self, reason: WaitReason) -> &mut u64 {
        match reason {
            WaitReason::OpenBatch => &mut self.0.wait_open_batch,
            WaitReason::HalfOpen => &mut self.0.wait_half_open,
            WaitReason::Budget => &mut self.0.wait_budget,
            WaitReason::Stopping => &mut self.0.wait_stopping,
        }
    }

    pub fn count_repeated(&mut self) {
        self.0.repeated += 1;
    }

    pub fn count_closed(&mut self) {
        self.0.closed += 1;
    }

    pub fn count_ran_out(&mut self) {
        self.0.ran_out += 1;
    }
}
