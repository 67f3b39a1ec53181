//! Keeps the options that the operator requires when the user sets the same key.
//!
//! Slurm uses the last value of a key, so a key in the user's free text would drop our options. For each such key a line
//! after the free text contains both.

use crate::text::{logical_lines, pairs};
use crate::writer::{MERGED_SECTION, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Options that the file must have, by key.
pub(crate) type Required = BTreeMap<&'static str, Vec<&'static str>>;

/// The authentication options that slurmctld and slurmdbd share.
pub(crate) fn auth_options(jwks: bool) -> Required {
    let mut parameters = vec!["jwt_key=/etc/slurm/jwt.key"];
    if jwks {
        parameters.push("jwks=/etc/slurm/jwks.json");
    }
    BTreeMap::from([("AuthAltParameters", parameters), ("AuthInfo", vec!["use_client_ids"])])
}

/// Writes the section that restores the required options, if the user's text sets any of their keys.
pub(crate) fn write_merged(file: &mut Writer, required: &Required, extra_conf: &str) {
    let lines = merge(required, extra_conf);
    if lines.is_empty() {
        return;
    }
    file.section(MERGED_SECTION);
    for (key, value) in lines {
        file.entry(key, value);
    }
}

/// The lines to add, by key: our options and the user's; ours win where names are equal.
fn merge(required: &Required, extra_conf: &str) -> Vec<(&'static str, String)> {
    let user = single_options(extra_conf);
    required
        .iter()
        .filter_map(|(key, ours)| {
            let theirs = user.get(&key.to_lowercase())?;
            Some((*key, union(ours, theirs)))
        })
        .collect()
}

/// The last value of each key that is alone on its line; lines of several pairs describe nodes and partitions.
fn single_options(text: &str) -> BTreeMap<String, String> {
    logical_lines(text)
        .iter()
        .filter_map(|line| match pairs(&line.text)?.as_slice() {
            [pair] => Some((pair.key.to_lowercase(), pair.value.to_owned())),
            _ => None,
        })
        .collect()
}

fn union(ours: &[&str], theirs: &str) -> String {
    let mut names: BTreeSet<String> = ours.iter().map(|option| name(option)).collect();
    let mut options: BTreeSet<&str> = ours.iter().copied().collect();
    options.extend(theirs.split(',').filter(|option| !option.is_empty() && names.insert(name(option))));
    Vec::from_iter(options).join(",")
}

/// Slurm compares option names without regard to case.
fn name(option: &str) -> String {
    option.split('=').next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::both_sides(&["bar", "baz"], "Foo=fizz,buzz,", Some("bar,baz,buzz,fizz"))]
    #[case::ours_wins(&["overlap=0"], "Foo=overlap=1", Some("overlap=0"))]
    #[case::names_ignore_case(&["Thing", "Overlap"], "foo=bar,overlap", Some("Overlap,Thing,bar"))]
    #[case::last_line_wins(&["x"], "Foo=a\nFoo=b", Some("b,x"))]
    #[case::the_users_case_is_kept(&["x"], "FOO=Path=/Data/Jobs,Claim=preferred_Username", Some("Claim=preferred_Username,Path=/Data/Jobs,x"))]
    #[case::first_of_equal_names(&["x"], "Foo=a=1,A=2", Some("a=1,x"))]
    #[case::quoted(&["x"], "Foo=\"a,b\"", Some("a,b,x"))]
    #[case::continued_and_commented(&["x"], "Foo=a,\\\nb # c", Some("a,b,x"))]
    #[case::the_operator_means_nothing_to_slurm(&["x"], "Foo+=a", Some("a,x"))]
    #[case::key_not_set(&["x"], "Bar=a", None)]
    #[case::several_pairs(&["x"], "PartitionName=a Foo=b", None)]
    #[case::malformed(&["x"], "Foo", None)]
    #[case::no_value(&["x"], "Foo=", None)]
    #[case::comment(&["x"], "# Foo=a", None)]
    fn required_options_are_kept(
        #[case] ours: &[&'static str],
        #[case] extra: &str,
        #[case] line: Option<&str>,
    ) {
        let required = BTreeMap::from([("Foo", ours.to_vec())]);
        let expected: Vec<_> = line.map(|value| ("Foo", value.to_owned())).into_iter().collect();
        assert_eq!(merge(&required, extra), expected);
    }

    #[test]
    fn keys_are_sorted() {
        let required = BTreeMap::from([("B", vec!["x"]), ("A", vec!["y"])]);
        let keys: Vec<_> = merge(&required, "b=1\na=1").into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["A", "B"]);
    }
}
