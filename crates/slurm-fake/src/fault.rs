//! Failures of slurmrestd, or of slurmctld behind it.

use http::{Method, StatusCode};
use std::time::Duration;

/// A failure. With `applied: true` the request is executed and only the answer is lost.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The connection is refused.
    Refused,
    /// The connection breaks before the answer.
    Lost {
        /// Whether the request is executed nevertheless.
        applied: bool,
    },
    /// No answer is ever sent.
    NoAnswer {
        /// Whether the request is executed nevertheless.
        applied: bool,
    },
    /// The answer is sent after this time.
    Slow(Duration),
    /// slurmctld is down: ping reports it, every other request is answered with 502 after 10 s.
    ControllerDown,
    /// slurmctld hangs: every request except ping is answered with 504 after 10 s and executed on recovery.
    ControllerHangs,
    /// Node lists are truncated to this many nodes.
    OnlyNodes(usize),
    /// Every request gets this answer.
    Answer {
        /// Its status.
        status: StatusCode,
        /// Its content type.
        kind: &'static str,
        /// Its body.
        body: String,
    },
}

/// The injected faults and the requests they affect.
#[derive(Debug, Default)]
pub struct Faults(Vec<(Scope, Fault)>);

#[derive(Debug)]
enum Scope {
    All,
    Only(Method, String),
}

impl Faults {
    /// Adds a fault for every request.
    pub fn all(&mut self, fault: Fault) {
        self.0.push((Scope::All, fault));
    }

    /// Adds a fault for requests with this method and with this text in their path.
    pub fn only(&mut self, method: Method, path: &str, fault: Fault) {
        self.0.push((Scope::Only(method, path.to_owned()), fault));
    }

    /// Removes all faults.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault of a request: the last one injected that affects it.
    pub fn of(&self, method: &Method, path: &str) -> Option<Fault> {
        let affects = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Only(only, part) => only == method && path.contains(part.as_str()),
        };
        self.0.iter().rev().find(|(scope, _)| affects(scope)).map(|(_, fault)| fault.clone())
    }
}
