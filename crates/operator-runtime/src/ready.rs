//! Readiness of the process: a set of gates, each of which is opened once.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The gates of the process. It is ready when none is closed.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    closed: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A condition of readiness. A gate that is dropped without being opened stays closed.
#[derive(Debug)]
#[must_use = "the process is not ready before the gate is opened"]
pub struct Gate {
    name: String,
    readiness: Readiness,
}

impl Readiness {
    /// Adds a gate; /readyz shows its name while it is closed.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let name = name.into();
        *self.closed.lock().entry(name.clone()).or_default() += 1;
        Gate { name, readiness: self.clone() }
    }

    /// The names of the closed gates; empty when ready.
    pub fn waiting_for(&self) -> Vec<String> {
        self.closed.lock().keys().cloned().collect()
    }
}

impl Gate {
    /// Opens the gate: its condition is met.
    pub fn open(self) {
        let mut closed = self.readiness.closed.lock();
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
    fn process_is_ready_when_every_gate_is_open() {
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
    fn dropped_gate_stays_closed() {
        let readiness = Readiness::default();
        drop(readiness.gate("Pod"));
        assert_eq!(readiness.waiting_for(), ["Pod"]);
    }
}
