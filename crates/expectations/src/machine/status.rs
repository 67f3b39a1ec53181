//! The state of the service for users and metrics.

use super::Machine;
use super::record::Record;
use crate::messages::{NodeSetName, OpenBatch, Status, WaitingNodeSet};
use std::time::Duration;

impl Machine {
    /// State of the service.
    pub fn status(&mut self, now: Duration) -> Status {
        self.advance(now);
        let records = self.records.iter();
        let waiting = self.records.iter();
        Status {
            membership: self.membership(),
            open: records.filter_map(|(nodeset, record)| open_batch(nodeset, record, self.now)).collect(),
            waiting: waiting
                .filter_map(|(nodeset, record)| waiting_nodeset(nodeset, record, self.now))
                .collect(),
            half_open_left: self.half_open_left(),
            counters: self.event_counts.0,
        }
    }
}

fn open_batch(nodeset: &NodeSetName, record: &Record, now: Duration) -> Option<OpenBatch> {
    let batch = record.open.as_ref()?;
    Some(OpenBatch {
        nodeset: nodeset.clone(),
        batch: batch.id.clone(),
        age: now.saturating_sub(batch.granted_at),
        granted: batch.granted,
        others: batch.others,
    })
}

fn waiting_nodeset(nodeset: &NodeSetName, record: &Record, now: Duration) -> Option<WaitingNodeSet> {
    let waiting = record.waiting.filter(|waiting| now < waiting.until)?;
    Some(WaitingNodeSet {
        nodeset: nodeset.clone(),
        reason: waiting.reason,
        age: now.saturating_sub(waiting.since),
    })
}
