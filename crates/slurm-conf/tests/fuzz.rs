//! Parsers of user text do not panic and have results of bounded size, whatever the text is.
//!
//! Texts are arbitrary, or made from those in `corpus/` by mutation. Put an input there that was found to be harmful.
//! `PROPTEST_CASES=1000000 cargo test -p slurm-conf --test fuzz` searches for longer.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use slurm_conf::check::{check_slurm_conf, check_slurmdbd_conf};
use slurm_conf::hostlist::{MAX_HOSTS, expand, fold, fold_set};
use slurm_conf::{
    ConfLine, ConfName, ConfValue, ExtraItems, is_equivalent, node_sets_in_file, partition_names,
};

/// What parsers treat specially.
const TOKENS: &[&str] = &[
    "[",
    "]",
    "-",
    ",",
    "0",
    "65536",
    "18446744073709551615",
    "n[1-3]",
    "=",
    "+=",
    "\"",
    "\\",
    "\\\n",
    "#",
    "\n",
    "\r\n",
    "\0",
    "\u{2028}",
    "é",
    " ",
    "NodeName=",
    "NodeSet=",
    "PartitionName=",
    "Nodes=",
    "State=DRAIN",
    "Include ",
    "### EXTRA CONFIG ###\n",
    "### MERGED CONFIG ###\n",
];

/// One change of a text.
#[derive(Clone, Debug)]
enum Mutation {
    /// A token is inserted this often.
    Insert(Index, &'static str, usize),
    /// A part is removed.
    Remove(Index, Index),
    /// A part is written twice.
    Repeat(Index, Index),
}

impl Mutation {
    fn apply(&self, text: &str) -> String {
        let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let at = |index: &Index| *index.get(&boundaries);
        let part = |a: &Index, b: &Index| (at(a).min(at(b)), at(a).max(at(b)));
        match self {
            Self::Insert(index, token, times) => {
                let (before, after) = text.split_at(at(index));
                format!("{before}{}{after}", token.repeat(*times))
            }
            Self::Remove(a, b) => {
                let (start, end) = part(a, b);
                format!("{}{}", &text[..start], &text[end..])
            }
            Self::Repeat(a, b) => {
                let (start, end) = part(a, b);
                format!("{}{}", &text[..end], &text[start..])
            }
        }
    }
}

fn corpus(directory: &str) -> Vec<String> {
    let directory = format!("{}/tests/corpus/{directory}", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(directory).unwrap();
    let mut texts: Vec<String> =
        entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    texts.sort();
    texts
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let times = prop_oneof![6 => 1..3_usize, 1 => 250..300_usize, 1 => Just(70_000_usize)];
    prop_oneof![
        4 => (any::<Index>(), select(TOKENS), times).prop_map(|(at, token, n)| Mutation::Insert(at, token, n)),
        2 => any::<(Index, Index)>().prop_map(|(a, b)| Mutation::Remove(a, b)),
        1 => any::<(Index, Index)>().prop_map(|(a, b)| Mutation::Repeat(a, b)),
    ]
}

/// A text that may have been written to do harm.
fn text(directory: &str) -> impl Strategy<Value = String> {
    let mutated = (select(corpus(directory)), prop::collection::vec(mutation(), 0..6))
        .prop_map(|(text, mutations)| mutations.iter().fold(text, |text, mutation| mutation.apply(&text)));
    let tokens = prop::collection::vec(select(TOKENS), 0..40).prop_map(|tokens| tokens.concat());
    prop_oneof![3 => mutated, 2 => tokens, 1 => any::<String>()]
}

/// Expands a hostlist, and folds the names in both ways.
fn use_hostlist(text: &str) {
    let _ = fold(text.split(','));
    let Ok(names) = expand(text) else { return };
    assert!(names.len() <= MAX_HOSTS, "{} names", names.len());
    assert!(names.iter().all(|name| name.len() <= 253), "a long name");
    let folded = fold(names.iter().map(String::as_str));
    assert_eq!(expand(&folded).as_ref(), Ok(&names), "{folded}");
    let _ = fold_set(names.iter().map(String::as_str));
}

/// Reads a text in all ways in which configuration is read.
fn use_file(text: &str) {
    let lines = text.lines().count();
    assert!(check_slurm_conf(text).len() <= 3 * lines + 1, "more findings than lines");
    assert!(check_slurmdbd_conf(text).len() <= 3 * lines + 1, "more findings than lines");
    assert!(is_equivalent(text, text));
    assert!(partition_names(text).len() <= lines);
    assert!(node_sets_in_file(text).len() <= lines);
    let _ = ExtraItems::parse(text);
    let _ = ConfName::new("f", text);
    let _ = ConfValue::new("f", text);
    if let Ok(line) = ConfLine::new("f", text) {
        let again = ConfLine::new("f", line.as_ref());
        assert_eq!(again.as_ref(), Ok(&line), "a line is read back as it is");
        let closed = line.closed_to_new_jobs();
        assert_eq!(closed.closed_to_new_jobs(), closed);
    }
}

#[test]
fn harmful_inputs_that_were_found_are_harmless() {
    for text in corpus("hostlists") {
        use_hostlist(&text);
    }
    for text in corpus("files") {
        use_file(&text);
    }
}

/// A few seconds of cases, unless more are asked for.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases: 64, ..config } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn hostlists_do_no_harm(text in text("hostlists")) {
        use_hostlist(&text);
    }

    #[test]
    fn files_do_no_harm(text in text("files")) {
        use_file(&text);
    }
}
