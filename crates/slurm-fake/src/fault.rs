//! Ways in which slurmrestd, or slurmctld behind it, fails.

use http::{Method, StatusCode};
use std::time::Duration;

/// One way to fail. "Applied" faults do what was asked for and lose only the answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nobody listens.
    Refused,
    /// The connection breaks before the answer.
    Lost {
        /// Whether the request is carried out all the same.
        applied: bool,
    },
    /// There is never an answer.
    NoAnswer {
        /// Whether the request is carried out all the same.
        applied: bool,
    },
    /// The answer comes after this time.
    Slow(Duration),
    /// slurmctld is down: ping says so, every other request is answered with 502 after 10 s.
    ControllerDown,
    /// slurmctld hangs: every request is answered after 10 s, with 504 but for ping, and done when it hangs no more.
    ControllerHangs,
    /// Node lists hold only as many nodes.
    OnlyNodes(usize),
    /// This answer, whatever the request.
    Answer {
        /// Its status.
        status: StatusCode,
        /// Its content type.
        kind: &'static str,
        /// Its body.
        body: String,
    },
}

/// Which requests fail.
#[derive(Debug, Default)]
pub struct Faults(Vec<(Scope, Fault)>);

#[derive(Debug)]
enum Scope {
    All,
    Only(Method, String),
}

impl Faults {
    /// Every request fails from now on.
    pub fn all(&mut self, fault: Fault) {
        self.0.push((Scope::All, fault));
    }

    /// Requests of this method with this text in their path fail from now on.
    pub fn only(&mut self, method: Method, path: &str, fault: Fault) {
        self.0.push((Scope::Only(method, path.to_owned()), fault));
    }

    /// Nothing fails any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The fault that meets a request: the one injected last.
    pub fn of(&self, method: &Method, path: &str) -> Option<Fault> {
        let meets = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Only(only, part) => only == method && path.contains(part.as_str()),
        };
        self.0.iter().rev().find(|(scope, _)| meets(scope)).map(|(_, fault)| fault.clone())
    }
}
