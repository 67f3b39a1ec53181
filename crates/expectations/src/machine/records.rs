//! Records of all NodeSets with a recent `Begin`, indexed by name, by batch and by the time of their next transition.

use super::record::{Expiry, GrantedBatch, Numbers, Record};
use crate::messages::{BatchId, NodeSetName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    numbers: Numbers,
    /// Boxed, because the nodes of a `BTreeMap` have unused slots.
    by_name: BTreeMap<NodeSetName, Box<Record>>,
    // Both indexes derive from the records. To change a record, remove it and insert it again.
    by_batch: BTreeMap<BatchId, NodeSetName>,
    by_due: BTreeSet<(Duration, NodeSetName)>,
}

impl Records {
    pub fn get(&self, nodeset: &NodeSetName) -> Option<&Record> {
        self.by_name.get(nodeset).map(Box::as_ref)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&NodeSetName, &Record)> {
        self.by_name.iter().map(|(nodeset, record)| (nodeset, record.as_ref()))
    }

    /// The NodeSet of a batch that is open or was the last to be ended by `Done`.
    pub fn nodeset_of(&self, batch: &BatchId) -> Option<&NodeSetName> {
        self.by_batch.get(batch)
    }

    pub fn all_settled(&self) -> bool {
        self.by_name.values().all(|record| record.is_settled())
    }

    /// The source of new numbers.
    pub fn numbers(&mut self) -> &mut Numbers {
        &mut self.numbers
    }

    /// Performs the transitions that are due and returns the batches that ran out.
    pub fn advance(&mut self, now: Duration) -> Vec<GrantedBatch> {
        let mut ran_out = Vec::new();
        while let Some((_, nodeset)) = self.by_due.first().filter(|(due_at, _)| *due_at <= now).cloned() {
            let Some(mut record) = self.remove(&nodeset) else { break };
            match record.expire(&mut self.numbers) {
                Expiry::BatchRanOut(batch) => {
                    ran_out.push(batch);
                    self.insert(nodeset, record);
                }
                Expiry::HalfOpenEnded => self.insert(nodeset, record),
                Expiry::RecordExpired => {}
            }
        }
        ran_out
    }

    /// Removes a record and its index entries.
    pub fn remove(&mut self, nodeset: &NodeSetName) -> Option<Box<Record>> {
        let (nodeset, record) = self.by_name.remove_entry(nodeset)?;
        for batch in record.batches() {
            self.by_batch.remove(batch);
        }
        self.by_due.remove(&(record.due_at(), nodeset));
        Some(record)
    }

    /// Inserts a record and its index entries.
    pub fn insert(&mut self, nodeset: NodeSetName, record: Box<Record>) {
        for batch in record.batches() {
            self.by_batch.insert(batch.clone(), nodeset.clone());
        }
        self.by_due.insert((record.due_at(), nodeset.clone()));
        self.by_name.insert(nodeset, record);
    }
}

#[cfg(test)]
impl Records {
    /// The same records with rebuilt indexes.
    pub fn reindexed(&self) -> Self {
        let mut reindexed = Self { numbers: self.numbers.clone(), ..Self::default() };
        for (nodeset, record) in &self.by_name {
            reindexed.insert(nodeset.clone(), record.clone());
        }
        reindexed
    }
}
