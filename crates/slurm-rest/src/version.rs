//! Which version of the API to speak: found out by speaking, kept while it works.

use parking_lot::Mutex;

/// The versions we speak, the one we like best first. What we read and write is alike in all of them, but for
/// reservations and topology, which the oldest cannot write.
const VERSIONS: [&str; 4] = ["v0.0.44", "v0.0.45", "v0.0.43", "v0.0.42"];

/// The version a server was seen to answer.
///
/// A server that does not know a version answers 404 before it does anything, so that any request may serve to find
/// out, a write too. A new release of the server starts the search anew: it may know a version we like better.
#[derive(Debug, Default)]
pub struct Negotiation(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    version: usize,
    release: Option<String>,
}

impl Negotiation {
    /// Versions in the order to try them in.
    pub fn candidates(&self) -> impl Iterator<Item = &'static str> + use<> {
        let first = self.0.lock().version;
        VERSIONS.iter().cycle().skip(first).take(VERSIONS.len()).copied()
    }

    /// The server answered a request of this version.
    pub fn worked(&self, version: &str) {
        let index = VERSIONS.iter().position(|known| *known == version).unwrap_or_default();
        let mut known = self.0.lock();
        if known.version != index {
            *known = Known { version: index, release: None };
        }
    }

    /// The server says which release of Slurm it is.
    pub fn met(&self, release: &str) {
        let mut known = self.0.lock();
        if known.release.as_deref().is_some_and(|known| known != release) {
            known.version = 0;
        }
        known.release = Some(release.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(negotiation: &Negotiation) -> Vec<&'static str> {
        negotiation.candidates().collect()
    }

    #[test]
    fn every_version_is_tried_once_the_working_one_first() {
        let negotiation = Negotiation::default();
        assert_eq!(order(&negotiation), VERSIONS);
        negotiation.worked("v0.0.43");
        assert_eq!(order(&negotiation), ["v0.0.43", "v0.0.42", "v0.0.44", "v0.0.45"]);
    }

    #[test]
    fn a_new_release_is_asked_for_the_best_version_again() {
        let negotiation = Negotiation::default();
        negotiation.worked("v0.0.42");
        negotiation.met("24.11.6");
        negotiation.met("24.11.6");
        assert_eq!(order(&negotiation)[0], "v0.0.42");
        negotiation.met("25.11.7");
        assert_eq!(order(&negotiation)[0], "v0.0.44");
    }
}
