//! What the last applies came to, so that none is repeated that changed nothing.
//!
//! The comparison of fields cannot know every form in which the API server writes a value (`1000m` becomes `1`). Where
//! it sees a difference that an apply does not remove, this memory ends the repetition. It may be lost at any time: the
//! price is one apply without effect per object.

use super::decide::Part;
use crate::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Beyond this the memory starts anew, so that objects long gone do not fill it.
const CAPACITY: usize = 20_000;

/// One apply that the server accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastApply {
    /// The version that the apply was decided on.
    pub before: Option<String>,
    /// The fingerprint of what was wanted.
    pub desired: u64,
    /// The fingerprint of what the server made of it.
    pub after: u64,
}

/// The last apply to each part of each object, by UID.
#[derive(Debug, Default)]
pub struct ApplyHistory {
    last: Mutex<BTreeMap<(String, Part), LastApply>>,
}

impl ApplyHistory {
    /// Whether an apply of the same wish led to this very state, or was already sent for this very version.
    pub fn settles(&self, uid: &str, part: Part, desired: u64, live: u64, version: Option<&String>) -> bool {
        lock(&self.last).get(&(uid.to_owned(), part)).is_some_and(|last| {
            last.desired == desired
                && (last.after == live || version.is_some() && last.before.as_ref() == version)
        })
    }

    /// Remembers an apply.
    pub fn remember(&self, uid: String, part: Part, apply: LastApply) {
        let mut last = lock(&self.last);
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
    #[case::another_wish("u", Part::Main, 3, 2, "5", false)]
    #[case::another_state("u", Part::Main, 1, 7, "9", false)]
    #[case::another_object("w", Part::Main, 1, 2, "5", false)]
    #[case::another_part("u", Part::Status, 1, 2, "5", false)]
    fn settled(
        #[case] uid: &str,
        #[case] part: Part,
        #[case] desired: u64,
        #[case] live: u64,
        #[case] version: &str,
        #[case] expected: bool,
    ) {
        let memory = ApplyHistory::default();
        memory.remember("u".into(), Part::Main, LastApply { before: Some("5".into()), desired: 1, after: 2 });
        assert_eq!(memory.settles(uid, part, desired, live, Some(&version.to_owned())), expected);
    }

    #[test]
    fn a_created_object_has_no_version_to_compare() {
        let memory = ApplyHistory::default();
        memory.remember("u".into(), Part::Main, LastApply { before: None, desired: 1, after: 2 });
        assert!(!memory.settles("u", Part::Main, 1, 7, None));
    }
}
