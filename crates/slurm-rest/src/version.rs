//! Negotiates the API version: tries the versions in order and keeps the one that works.

use parking_lot::Mutex;

/// Supported versions, the preferred one first. The fields we read and write are the same in all of them, except that
/// the oldest cannot write reservations and topology.
const VERSIONS: [&str; 4] = ["v0.0.44", "v0.0.45", "v0.0.43", "v0.0.42"];

/// The version that the server last answered in.
///
/// A server that does not know a version answers 404 before any effect, so every request, writes included, may be used
/// to probe. A new release of the server restarts the probing: it may know a version that we prefer.
#[derive(Debug, Default)]
pub struct Negotiation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    version: usize,
    release: Option<String>,
}

impl Negotiation {
    /// Versions in the order to try them.
    pub fn candidates(&self) -> impl Iterator<Item = &'static str> + use<> {
        let first = self.0.lock().version;
        VERSIONS.iter().cycle().skip(first).take(VERSIONS.len()).copied()
    }

    /// Records that the server answered a request in this version.
    pub fn record_success(&self, version: &str) {
        let index = VERSIONS.iter().position(|known| *known == version).unwrap_or_default();
        let mut state = self.0.lock();
        if state.version != index {
            *state = State { version: index, release: None };
        }
    }

    /// Records the Slurm release of the server.
    pub fn record_release(&self, release: &str) {
        let mut state = self.0.lock();
        if state.release.as_deref().is_some_and(|known| known != release) {
            state.version = 0;
        }
        state.release = Some(release.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(negotiation: &Negotiation) -> Vec<&'static str> {
        negotiation.candidates().collect()
    }

    #[test]
    fn each_version_is_tried_once_starting_with_the_last_working_one() {
        let negotiation = Negotiation::default();
        assert_eq!(order(&negotiation), VERSIONS);
        negotiation.record_success("v0.0.43");
        assert_eq!(order(&negotiation), ["v0.0.43", "v0.0.42", "v0.0.44", "v0.0.45"]);
    }

    #[test]
    fn new_release_restarts_with_the_preferred_version() {
        let negotiation = Negotiation::default();
        negotiation.record_success("v0.0.42");
        negotiation.record_release("24.11.6");
        negotiation.record_release("24.11.6");
        assert_eq!(order(&negotiation)[0], "v0.0.42");
        negotiation.record_release("25.11.7");
        assert_eq!(order(&negotiation)[0], "v0.0.44");
    }
}
