//! The conformance data: what the API's reference implementation did, kept outside this repository.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Names the directory with the data; by default it lies beside the repository.
const DIRECTORY_VARIABLE: &str = "CONFORMANCE_DIR";

/// The directory with the data.
///
/// `None`, with a line on standard error, where there is none: a stranger can run the other tests.
///
/// # Panics
/// In CI, where the data must be there.
pub fn directory() -> Option<PathBuf> {
    let directory = std::env::var_os(DIRECTORY_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
        PathBuf::from,
    );
    if directory.is_dir() {
        return Some(directory);
    }
    let sentence = format!("no conformance data in {} (set {DIRECTORY_VARIABLE})", directory.display());
    assert!(std::env::var_os("CI").is_none(), "{sentence}");
    eprintln!("SKIPPED: {sentence}");
    None
}

/// Differences that are meant.
#[derive(Debug, Deserialize)]
pub struct Deviation {
    /// Why they are meant.
    pub reason: String,
    /// Where: as the comparison prints it; `*` stands for anything.
    pub at: Vec<String>,
}

/// Reads a file of meant differences.
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
    /// Where.
    pub at: String,
    /// What is there, and what should be.
    pub detail: String,
}

/// Checks that the differences are exactly those that are meant, so that the list cannot rot either.
///
/// # Panics
/// If a difference is not listed, or a listed one is not found.
pub fn assert_all_meant(differences: &[Difference], meant: &[Deviation]) {
    let listed: Vec<&str> = meant.iter().flat_map(|deviation| &deviation.at).map(String::as_str).collect();
    let unlisted: Vec<String> = differences
        .iter()
        .filter(|difference| !listed.iter().any(|pattern| fits(pattern, &difference.at)))
        .map(|difference| format!("{}: {}", difference.at, difference.detail))
        .collect();
    let is_found = |pattern: &str| differences.iter().any(|difference| fits(pattern, &difference.at));
    let stale: Vec<&str> = listed.iter().copied().filter(|pattern| !is_found(pattern)).collect();
    assert!(unlisted.is_empty(), "differences that are not in the deviations file:\n{}", unlisted.join("\n"));
    assert!(stale.is_empty(), "deviations that are listed but not there: {stale:#?}");
}

/// True if the text is what the pattern says.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    text.char_indices().map(|(index, _)| index).chain([text.len()]).any(|index| fits(rest, &text[index..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(at: &str) -> Difference {
        Difference { at: at.to_owned(), detail: String::new() }
    }

    #[test]
    fn a_listed_difference_passes() {
        assert_all_meant(&[difference("a")], &deviations("[{reason: because, at: [a]}]"));
    }

    #[test]
    fn a_pattern_lists_all_that_fit() {
        let meant = deviations("[{reason: because, at: ['a * c*', '*.d']}]");
        assert_all_meant(&[difference("a b c"), difference("a  cc"), difference("b.d")], &meant);
    }

    #[test]
    #[should_panic(expected = "not in the deviations file:\na b: ")]
    fn a_pattern_does_not_list_what_does_not_fit() {
        assert_all_meant(
            &[difference("a b"), difference("a c")],
            &deviations("[{reason: because, at: ['a*c']}]"),
        );
    }

    #[test]
    #[should_panic(expected = "not in the deviations file:\nb: ")]
    fn an_unlisted_difference_fails() {
        assert_all_meant(&[difference("b")], &[]);
    }

    #[test]
    #[should_panic(expected = "listed but not there")]
    fn a_listed_difference_that_is_gone_fails() {
        assert_all_meant(&[], &deviations("[{reason: because, at: [a]}]"));
    }

    #[test]
    #[should_panic(expected = "have no reason")]
    fn a_deviation_needs_a_reason() {
        deviations("[{reason: ' ', at: [a]}]");
    }
}
