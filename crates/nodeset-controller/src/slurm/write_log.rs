//! What was written and not seen since: until a read that was asked for later, nothing is known of it. Pure.

use crate::timing::LATE_WRITE_WINDOW;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// The order in which questions were asked and writes answered. A clock may show the same time for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u64);

impl Turn {
    /// The next one.
    pub fn next(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// When a question was asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Before and after what.
    pub turn: Turn,
    /// For what is decided here.
    pub at: Instant,
    /// For others.
    pub time: Timestamp,
}

/// How a write ended.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// With an answer, good or bad: it has no effect any more.
    Answered(Turn),
    /// With the answer that there is no such thing any more.
    Deleted(Turn),
    /// Without an answer. It was sent then.
    Lost(Instant),
}

/// The writes that no read has shown yet, by the name of what was written to.
#[derive(Debug, Default)]
pub struct WriteLog(BTreeMap<String, Entry>);

#[derive(Debug, Default)]
struct Entry {
    in_flight: usize,
    answered: Option<Turn>,
    /// Until then an unanswered write may take effect.
    lands_until: Option<Instant>,
    deleted: bool,
}

impl Entry {
    fn is_shown_by(&self, asked: &Asked) -> bool {
        self.in_flight == 0
            && self.answered.is_none_or(|answered| answered < asked.turn)
            && self.lands_until.is_none_or(|until| until <= asked.at)
    }
}

impl WriteLog {
    /// A write to all of these is about to be sent.
    pub fn begin(&mut self, names: &[String]) {
        for name in names {
            let entry = self.0.entry(name.clone()).or_default();
            entry.in_flight += 1;
            entry.deleted = false;
        }
    }

    /// A write that began ended.
    pub fn end(&mut self, names: &[String], outcome: Outcome) {
        for name in names {
            let Some(entry) = self.0.get_mut(name) else { continue };
            entry.in_flight = entry.in_flight.saturating_sub(1);
            match outcome {
                Outcome::Answered(turn) => entry.answered = Some(turn),
                Outcome::Deleted(turn) => (entry.answered, entry.deleted) = (Some(turn), true),
                Outcome::Lost(sent) => {
                    entry.lands_until = entry.lands_until.max(Some(sent + LATE_WRITE_WINDOW))
                }
            }
        }
    }

    /// Forgets the writes whose effect a read shows. Gives the names that Slurm itself said to have deleted.
    pub fn settle(&mut self, asked: &Asked) -> BTreeSet<String> {
        let shown = self.0.extract_if(.., |_, entry| entry.is_shown_by(asked));
        shown.filter(|(_, entry)| entry.deleted).map(|(name, _)| name).collect()
    }

    /// What was written to and not seen since.
    pub fn unseen(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Whether everything that was written has been seen.
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
        turn: Turn,
        start: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { log: WriteLog::default(), turn: Turn::default(), start: Instant::now() }
        }

        fn asked(&mut self, second: u64) -> Asked {
            let at = self.start + Duration::from_secs(second);
            Asked { turn: self.turn.next(), at, time: Timestamp::UNIX_EPOCH }
        }

        fn unseen(&self) -> Vec<&str> {
            self.log.unseen().map(String::as_str).collect()
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_read_shows_the_writes_that_were_answered_before_it_was_asked_for() {
        let mut fixture = Fixture::new();
        let before = fixture.asked(0);
        fixture.log.begin(&names(&["a", "b"]));
        let during = fixture.asked(0);
        let answered = Outcome::Answered(fixture.turn.next());
        fixture.log.end(&names(&["a", "b"]), answered);
        let after = fixture.asked(0);
        for asked in [before, during] {
            fixture.log.settle(&asked);
            assert_eq!(fixture.unseen(), ["a", "b"]);
        }
        fixture.log.settle(&after);
        assert!(fixture.log.is_settled());
    }

    #[test]
    fn of_two_writes_at_a_time_the_later_answer_counts() {
        let mut fixture = Fixture::new();
        let node = names(&["a"]);
        fixture.log.begin(&node);
        fixture.log.begin(&node);
        let first = Outcome::Answered(fixture.turn.next());
        fixture.log.end(&node, first);
        let between = fixture.asked(1);
        fixture.log.settle(&between);
        assert_eq!(fixture.unseen(), ["a"]);
        let second = Outcome::Answered(fixture.turn.next());
        fixture.log.end(&node, second);
        fixture.log.settle(&between);
        assert_eq!(fixture.unseen(), ["a"]);
        let after = fixture.asked(2);
        fixture.log.settle(&after);
        assert!(fixture.log.is_settled());
    }

    #[rstest]
    #[case(39, false)]
    #[case(40, true)]
    fn a_write_without_answer_may_land_for_40_s(#[case] second: u64, #[case] settled: bool) {
        let mut fixture = Fixture::new();
        let (node, sent) = (names(&["a"]), fixture.start);
        fixture.log.begin(&node);
        fixture.log.end(&node, Outcome::Lost(sent));
        // A later write that is answered does not call back the first.
        fixture.log.begin(&node);
        let answered = Outcome::Answered(fixture.turn.next());
        fixture.log.end(&node, answered);
        let asked = fixture.asked(second);
        fixture.log.settle(&asked);
        assert_eq!(fixture.log.is_settled(), settled);
    }

    #[test]
    fn only_what_slurm_deleted_last_is_told_as_deleted() {
        let mut fixture = Fixture::new();
        let nodes = names(&["gone", "updated", "back"]);
        fixture.log.begin(&nodes);
        let deleted = Outcome::Deleted(fixture.turn.next());
        fixture.log.end(&names(&["gone", "back"]), deleted);
        fixture.log.end(&names(&["updated"]), deleted);
        for node in [names(&["back"]), names(&["updated"])] {
            fixture.log.begin(&node);
            let answered = Outcome::Answered(fixture.turn.next());
            fixture.log.end(&node, answered);
        }
        let asked = fixture.asked(1);
        assert_eq!(fixture.log.settle(&asked), BTreeSet::from(["gone".to_owned()]));
    }
}
