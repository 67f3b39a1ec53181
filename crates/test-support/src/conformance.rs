//! The conformance data: output of the API's reference implementation, stored outside this repository.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The directory with the data; the default is beside the repository.
const DIRECTORY_VARIABLE: &str = "CONFORMANCE_DIR";

/// The directory with the data.
///
/// `None`, with a line on standard error, if it does not exist: the other tests run without the data.
///
/// # Panics
/// If it does not exist in CI.
pub fn directory() -> Option<PathBuf> {
    let directory = std::env::var_os(DIRECTORY_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
        PathBuf::from,
    );
    if directory.is_dir() {
        return Some(directory);
    }
    let message = format!("no conformance data in {} (set {DIRECTORY_VARIABLE})", directory.display());
    assert!(std::env::var_os("CI").is_none(), "{message}");
    eprintln!("SKIPPED: {message}");
    None
}

/// Intended differences.
#[derive(Debug, Deserialize)]
pub struct Deviation {
    /// Why they are intended.
    pub reason: String,
    /// Paths, as the comparison prints them; `*` matches any text.
    pub at: Vec<String>,
}

/// Parses a file of intended differences.
///
/// # Panics
/// If the file cannot be read, or a reason is missing.
pub fn deviations(yaml: &str) -> Vec<Deviation> {
    let list: Vec<Deviation> = serde_saphyr::from_str(yaml).expect("the deviations file is YAML");
    for deviation in &list {
        assert!(!deviation.reason.trim().is_empty(), "{:?} have no reason", deviation.at);
    }
    list
}

/// A difference found by a comparison.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path.
    pub at: String,
    /// Actual and expected value.
    pub detail: String,
}

/// Checks that the differences are exactly the intended ones, so that the list has no stale entries either.
///
/// # Panics
/// If a difference is not listed, or a listed one is not found.
pub fn assert_all_meant(differences: &[Difference], meant: &[Deviation]) {
    let listed: Vec<&str> = meant.iter().flat_map(|deviation| &deviation.at).map(String::as_str).collect();
    let unlisted: Vec<String> = differences
        .iter()
        .filter(|difference| !listed.iter().any(|pattern| matches(pattern, &difference.at)))
        .map(|difference| format!("{}: {}", difference.at, difference.detail))
        .collect();
    let is_found = |pattern: &str| differences.iter().any(|difference| matches(pattern, &difference.at));
    let stale: Vec<&str> = listed.iter().copied().filter(|pattern| !is_found(pattern)).collect();
    assert!(unlisted.is_empty(), "differences that are not in the deviations file:\n{}", unlisted.join("\n"));
    assert!(stale.is_empty(), "deviations that are listed but were not found: {stale:#?}");
}

/// Whether the text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    text.char_indices().map(|(index, _)| index).chain([text.len()]).any(|index| matches(rest, &text[index..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(at: &str) -> Difference {
        Difference { at: at.to_owned(), detail: String::new() }
    }

    #[test]
    fn listed_difference_passes() {
        assert_all_meant(&[difference("a")], &deviations("[{reason: because, at: [a]}]"));
    }

    #[test]
    fn pattern_matches_several_differences() {
        let meant = deviations("[{reason: because, at: ['a * c*', '*.d']}]");
        assert_all_meant(&[difference("a b c"), difference("a  cc"), difference("b.d")], &meant);
    }

    #[test]
    #[should_panic(expected = "not in the deviations file:\na b: ")]
    fn difference_that_matches_no_pattern_fails() {
        assert_all_meant(
            &[difference("a b"), difference("a c")],
            &deviations("[{reason: because, at: ['a*c']}]"),
        );
    }

    #[test]
    #[should_panic(expected = "not in the deviations file:\nb: ")]
    fn unlisted_difference_fails() {
        assert_all_meant(&[difference("b")], &[]);
    }

    #[test]
    #[should_panic(expected = "listed but were not found")]
    fn listed_difference_that_is_not_found_fails() {
        assert_all_meant(&[], &deviations("[{reason: because, at: [a]}]"));
    }

    #[test]
    #[should_panic(expected = "have no reason")]
    fn deviation_without_a_reason_fails() {
        deviations("[{reason: ' ', at: [a]}]");
    }
}
