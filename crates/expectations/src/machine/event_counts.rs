//! Counts the events of an epoch. The counts do not affect the machine's behaviour, so machines that differ only in them
//! are equal: a model checker would otherwise never reach the same state twice.

use crate::messages::{Answer, Counters, Wait, WaitReason};
use std::hash::{Hash, Hasher};

#[derive(Clone, Debug, Default)]
pub struct EventCounts(pub Counters);

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
    pub fn count_answer(&mut self, answer: &Answer) {
        let counters = &mut self.0;
        let counter = match answer {
            Answer::Granted(_) => &mut counters.granted,
            Answer::NotOwner(_) => &mut counters.not_owner,
            Answer::NeedFresh(_) => &mut counters.need_fresh,
            Answer::Wait(Wait { reason, .. }) => match reason {
                WaitReason::OpenBatch => &mut counters.wait_open_batch,
                WaitReason::HalfOpen => &mut counters.wait_half_open,
                WaitReason::Budget => &mut counters.wait_budget,
                WaitReason::Stopping => &mut counters.wait_stopping,
            },
        };
        *counter += 1;
    }
}
