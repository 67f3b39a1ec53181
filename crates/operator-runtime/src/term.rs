//! The time for which a process holds its Lease, on its own clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a holder may act as such. Clones share it.
#[derive(Clone, Debug)]
pub struct Term {
    /// When the last successful renewal was sent, in nanoseconds since the machine was started; [`ENDED`] after its end.
    renewed: Arc<AtomicU64>,
    /// How long it lasts after a renewal.
    length: Duration,
}

/// The time of the last renewal of a term that was ended.
const ENDED: u64 = u64::MAX;

impl Term {
    pub(crate) fn new(renewed: Duration, length: Duration) -> Self {
        let term = Self { renewed: Arc::default(), length };
        term.extend(renewed);
        term
    }

    pub(crate) fn extend(&self, renewed: Duration) {
        self.renewed.store(u64::try_from(renewed.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Ends it now: the Lease is lost, or about to be released.
    pub(crate) fn end(&self) {
        self.renewed.store(ENDED, Ordering::Release);
    }

    /// Whether the holder may act at this time since the machine was started: the last successful renewal was sent less
    /// than the renew deadline before. No other process can hold the Lease then.
    pub fn covers(&self, now: Duration) -> bool {
        let renewed = self.renewed.load(Ordering::Acquire);
        renewed != ENDED && now < Duration::from_nanos(renewed).saturating_add(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::Term;
    use std::time::Duration;

    #[test]
    fn term_ends_a_while_after_the_last_renewal_was_sent() {
        let (sent, length) = (Duration::from_secs(1_000), Duration::from_secs(10));
        let term = Term::new(sent, length);
        assert!(term.covers(sent));
        assert!(term.covers(sent + Duration::from_millis(9_999)));
        assert!(!term.covers(sent + length));
        term.extend(sent + Duration::from_secs(2));
        assert!(term.covers(sent + length));
        term.end();
        assert!(!term.covers(sent));
    }
}
