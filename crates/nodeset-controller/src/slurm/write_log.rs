//! Writes whose effect no read has shown yet: until a read that started later, the written objects are uncertain. Pure.
//!
//! Slurm has no conditional writes and no resource versions to compare a read with.

use crate::timing::LATE_WRITE_WINDOW;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// The order of starts of reads and answers to writes. The clock may show the same time for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(u64);

impl Sequence {
    /// The next number.
    pub fn next(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// When a read started.
#[derive(Clone, Copy, Debug)]
pub struct ReadStart {
    /// Its place among the answers to writes.
    pub sequence: Sequence,
    /// Monotonic time.
    pub at: Instant,
    /// Wall-clock time.
    pub time: Timestamp,
}

/// How a write ended.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// Answered, with success or an error: it has no later effect.
    Answered(Sequence),
    /// Slurm confirmed the deletion.
    Deleted(Sequence),
    /// Sent at this time and not answered.
    Unanswered(Instant),
}

/// The writes that no read has shown yet, by the name of the written object.
#[derive(Debug, Default)]
pub struct WriteLog(BTreeMap<String, Entry>);

#[derive(Debug, Default)]
struct Entry {
    in_flight: usize,
    answered: Option<Sequence>,
    /// Until then an unanswered write may take effect.
    may_apply_until: Option<Instant>,
    deleted: bool,
}

impl Entry {
    fn is_shown_by(&self, read: &ReadStart) -> bool {
        self.in_flight == 0
            && self.answered.is_none_or(|answered| answered < read.sequence)
            && self.may_apply_until.is_none_or(|until| until <= read.at)
    }
}

impl WriteLog {
    /// A write to these objects is about to be sent.
    pub fn start(&mut self, names: &[String]) {
        for name in names {
            let entry = self.0.entry(name.clone()).or_default();
            entry.in_flight += 1;
            entry.deleted = false;
        }
    }

    /// A started write ended.
    pub fn finish(&mut self, names: &[String], outcome: Outcome) {
        for name in names {
            let Some(entry) = self.0.get_mut(name) else { continue };
            entry.in_flight = entry.in_flight.saturating_sub(1);
            match outcome {
                Outcome::Answered(sequence) => entry.answered = Some(sequence),
                Outcome::Deleted(sequence) => (entry.answered, entry.deleted) = (Some(sequence), true),
                Outcome::Unanswered(sent) => {
                    entry.may_apply_until = entry.may_apply_until.max(Some(sent + LATE_WRITE_WINDOW));
                }
            }
        }
    }

    /// Removes the writes whose effect a read shows. Returns the names whose deletion Slurm confirmed.
    pub fn settle(&mut self, read: &ReadStart) -> BTreeSet<String> {
        let shown = self.0.extract_if(.., |_, entry| entry.is_shown_by(read));
        shown.filter(|(_, entry)| entry.deleted).map(|(name, _)| name).collect()
    }

    /// The objects with a write that no read has shown yet.
    pub fn unconfirmed(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Whether reads have shown all writes.
    pub fn is_settled(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::time::Duration;

    struct Fixture {
        log: WriteLog,
        sequence: Sequence,
        start: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { log: WriteLog::default(), sequence: Sequence::default(), start: Instant::now() }
        }

        fn read_at(&mut self, second: u64) -> ReadStart {
            let at = self.start + Duration::from_secs(second);
            ReadStart { sequence: self.sequence.next(), at, time: Timestamp::UNIX_EPOCH }
        }

        fn unconfirmed(&self) -> Vec<&str> {
            self.log.unconfirmed().map(String::as_str).collect()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn read_shows_the_writes_that_were_answered_before_it_started() {
        let mut fixture = Fixture::new();
        let before = fixture.read_at(0);
        fixture.log.start(&names(&["a", "b"]));
        let during = fixture.read_at(0);
        let answered = Outcome::Answered(fixture.sequence.next());
        fixture.log.finish(&names(&["a", "b"]), answered);
        let after = fixture.read_at(0);
        for read in [before, during] {
            fixture.log.settle(&read);
            assert_eq!(fixture.unconfirmed(), ["a", "b"]);
        }
        fixture.log.settle(&after);
        assert!(fixture.log.is_settled());
    }

    #[test]
    fn concurrent_writes_are_settled_by_a_read_after_the_last_answer() {
        let mut fixture = Fixture::new();
        let node = names(&["a"]);
        fixture.log.start(&node);
        fixture.log.start(&node);
        let first = Outcome::Answered(fixture.sequence.next());
        fixture.log.finish(&node, first);
        let between = fixture.read_at(1);
        fixture.log.settle(&between);
        assert_eq!(fixture.unconfirmed(), ["a"]);
        let second = Outcome::Answered(fixture.sequence.next());
        fixture.log.finish(&node, second);
        fixture.log.settle(&between);
        assert_eq!(fixture.unconfirmed(), ["a"]);
        let after = fixture.read_at(2);
        fixture.log.settle(&after);
        assert!(fixture.log.is_settled());
    }

    #[rstest]
    #[case::within_the_window(39, false)]
    #[case::after_the_window(40, true)]
    fn unanswered_write_may_take_effect_for_40_s(#[case] second: u64, #[case] settled: bool) {
        let mut fixture = Fixture::new();
        let (node, sent) = (names(&["a"]), fixture.start);
        fixture.log.start(&node);
        fixture.log.finish(&node, Outcome::Unanswered(sent));
        // An answered later write does not cancel the first.
        fixture.log.start(&node);
        let answered = Outcome::Answered(fixture.sequence.next());
        fixture.log.finish(&node, answered);
        let read = fixture.read_at(second);
        fixture.log.settle(&read);
        assert_eq!(fixture.log.is_settled(), settled);
    }

    #[test]
    fn only_names_without_a_later_write_are_returned_as_deleted() {
        let mut fixture = Fixture::new();
        let nodes = names(&["deleted", "updated", "recreated"]);
        fixture.log.start(&nodes);
        let deleted = Outcome::Deleted(fixture.sequence.next());
        fixture.log.finish(&names(&["deleted", "recreated"]), deleted);
        fixture.log.finish(&names(&["updated"]), deleted);
        for node in [names(&["recreated"]), names(&["updated"])] {
            fixture.log.start(&node);
            let answered = Outcome::Answered(fixture.sequence.next());
            fixture.log.finish(&node, answered);
        }
        let read = fixture.read_at(1);
        assert_eq!(fixture.log.settle(&read), BTreeSet::from(["deleted".to_owned()]));
    }
}
