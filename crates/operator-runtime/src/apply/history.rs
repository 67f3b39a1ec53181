//! The last apply to each object, so that an apply without effect is not repeated.
//!
//! The API server normalises values (`1000m` becomes `1`), and the field comparison does not know every normal form.
//! Where it sees a difference that an apply does not remove, the history prevents an apply per reconcile. Losing it, as
//! on a restart, costs one apply without effect per object.

use super::decide::Part;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The history is cleared at this size, so that deleted objects do not fill it.
const CAPACITY: usize = 20_000;

/// An apply that the API server accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastApply {
    /// The resourceVersion of the live object that the apply was decided on.
    pub before: Option<String>,
    /// The fingerprint of the desired object.
    pub desired: u64,
    /// The fingerprint of the object that the API server returned.
    pub after: u64,
}

/// The last apply to each part of each object, by UID.
#[derive(Debug, Default)]
pub struct ApplyHistory {
    last: Mutex<BTreeMap<(String, Part), LastApply>>,
}

impl ApplyHistory {
    /// Whether the same desired object was already applied: with this live state as the result, or to this version.
    pub fn already_applied(
        &self,
        uid: &str,
        part: Part,
        desired: u64,
        live: u64,
        version: Option<&String>,
    ) -> bool {
        self.last.lock().get(&(uid.to_owned(), part)).is_some_and(|last| {
            last.desired == desired
                && (last.after == live || version.is_some() && last.before.as_ref() == version)
        })
    }

    /// Records an apply.
    pub fn record(&self, uid: String, part: Part, apply: LastApply) {
        let mut last = self.last.lock();
        if last.len() >= CAPACITY {
            last.clear();
        }
        last.insert((uid, part), apply);
    }
}

#[cfg(test)]
mod tests {
    use super::{ApplyHistory, LastApply, Part};
    use rstest::rstest;

    #[rstest]
    #[case::same_result("u", Part::Main, 1, 2, "9", true)]
    #[case::same_version("u", Part::Main, 1, 7, "5", true)]
    #[case::other_desired_object("u", Part::Main, 3, 2, "5", false)]
    #[case::other_live_state_and_version("u", Part::Main, 1, 7, "9", false)]
    #[case::other_uid("w", Part::Main, 1, 2, "5", false)]
    #[case::other_part("u", Part::Status, 1, 2, "5", false)]
    fn same_desired_object_is_not_applied_again_to_the_same_result_or_version(
        #[case] uid: &str,
        #[case] part: Part,
        #[case] desired: u64,
        #[case] live: u64,
        #[case] version: &str,
        #[case] expected: bool,
    ) {
        let history = ApplyHistory::default();
        history.record("u".into(), Part::Main, LastApply { before: Some("5".into()), desired: 1, after: 2 });
        assert_eq!(history.already_applied(uid, part, desired, live, Some(&version.to_owned())), expected);
    }

    #[test]
    fn create_without_a_prior_version_matches_only_by_result() {
        let history = ApplyHistory::default();
        history.record("u".into(), Part::Main, LastApply { before: None, desired: 1, after: 2 });
        assert!(!history.already_applied("u", Part::Main, 1, 7, None));
    }
}
