//! Whether the process can do its work: a set of gates, each opened once, and the wish to stop.

use crate::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The gates of a process. It is ready when none is closed.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    closed: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// Something that has to happen before the process is ready. One that is dropped unopened stays closed.
#[derive(Debug)]
#[must_use = "the process is not ready before the gate is opened"]
pub struct Gate {
    name: String,
    readiness: Readiness,
}

impl Readiness {
    /// Adds a gate; the name is shown while it is closed.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let name = name.into();
        *lock(&self.closed).entry(name.clone()).or_default() += 1;
        Gate { name, readiness: self.clone() }
    }

    /// The names of the closed gates; empty when ready.
    pub fn waiting_for(&self) -> Vec<String> {
        lock(&self.closed).keys().cloned().collect()
    }
}

impl Gate {
    /// What the gate stands for has happened.
    pub fn open(self) {
        let mut closed = lock(&self.readiness.closed);
        if let Some(count) = closed.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                closed.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn ready_when_every_gate_is_open() {
        let readiness = Readiness::default();
        assert_eq!(readiness.waiting_for(), Vec::<String>::new());
        let (first_pods, more_pods, nodes) =
            (readiness.gate("Pod"), readiness.gate("Pod"), readiness.gate("Node"));
        first_pods.open();
        assert_eq!(readiness.waiting_for(), ["Node", "Pod"]);
        more_pods.open();
        nodes.open();
        assert_eq!(readiness.waiting_for(), Vec::<String>::new());
    }

    #[test]
    fn a_dropped_gate_stays_closed() {
        let readiness = Readiness::default();
        drop(readiness.gate("Pod"));
        assert_eq!(readiness.waiting_for(), ["Pod"]);
    }
}
