//! All NodeSets that asked lately, found by name, by batch, and by when time changes them.

use super::record::{GrantedBatch, Numbers, Passed, Record};
use crate::messages::{BatchId, NodeSetName};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    numbers: Numbers,
    /// Boxed, because nodes of a map are half empty.
    by_name: BTreeMap<NodeSetName, Box<Record>>,
    // The other two follow from the records, which are taken out of all three to be changed.
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

    /// The NodeSet of a batch that is open, or that was the last to be ended by its holder.
    pub fn nodeset_of(&self, batch: &BatchId) -> Option<&NodeSetName> {
        self.by_batch.get(batch)
    }

    pub fn all_settled(&self) -> bool {
        self.by_name.values().all(|record| record.is_settled())
    }

    /// Where records take new numbers from.
    pub fn numbers(&mut self) -> &mut Numbers {
        &mut self.numbers
    }

    /// Does what is due, and gives the batches that ran out.
    pub fn advance(&mut self, now: Duration) -> Vec<GrantedBatch> {
        let mut ran_out = Vec::new();
        while let Some((_, nodeset)) = self.by_due.first().filter(|(due_at, _)| *due_at <= now).cloned() {
            let Some(mut record) = self.take_out(&nodeset) else { break };
            match record.pass(&mut self.numbers) {
                Passed::RanOut(batch) => {
                    ran_out.push(batch);
                    self.put_in(nodeset, record);
                }
                Passed::HalfOpenOver => self.put_in(nodeset, record),
                Passed::Forgotten => {}
            }
        }
        ran_out
    }

    /// Takes a record out to be changed: while it is out, none of its batches is found.
    pub fn take_out(&mut self, nodeset: &NodeSetName) -> Option<Box<Record>> {
        let (nodeset, record) = self.by_name.remove_entry(nodeset)?;
        for batch in record.batches() {
            self.by_batch.remove(batch);
        }
        self.by_due.remove(&(record.due_at(), nodeset));
        Some(record)
    }

    /// Puts a record in, a new one or one that was taken out.
    pub fn put_in(&mut self, nodeset: NodeSetName, record: Box<Record>) {
        for batch in record.batches() {
            self.by_batch.insert(batch.clone(), nodeset.clone());
        }
        self.by_due.insert((record.due_at(), nodeset.clone()));
        self.by_name.insert(nodeset, record);
    }
}

#[cfg(test)]
impl Records {
    /// The same records with the indexes made from them.
    pub fn indexed_anew(&self) -> Self {
        let mut anew = Self { numbers: self.numbers.clone(), ..Self::default() };
        for (nodeset, record) in &self.by_name {
            anew.put_in(nodeset.clone(), record.clone());
        }
        anew
    }
}
