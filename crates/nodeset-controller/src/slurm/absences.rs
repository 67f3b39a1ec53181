//! Nodes that were there and are missing: when that proves that they are gone. Pure.

use crate::timing::{ABSENCE_PROOF, MASS_ABSENCE_PROOF};
use slurm_rest::Node;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// All nodes of a cluster, by name.
pub type Nodes = BTreeMap<String, Node>;

/// Nodes missing from the last list, each with the moment from which on a list without it proves that it is gone.
#[derive(Debug, Default)]
pub struct Absences(BTreeMap<String, Instant>);

impl Absences {
    /// Takes note of a list that was asked for then. Nodes in `deleted` are gone by Slurm's own word.
    pub fn compare(&mut self, before: &Nodes, after: &Nodes, deleted: &BTreeSet<String>, asked: Instant) {
        let is_lost = |name: &&String| !after.contains_key(*name) && !deleted.contains(*name);
        let lost: Vec<&String> = before.keys().filter(is_lost).collect();
        let is_suspicious = !lost.is_empty() && (after.is_empty() || lost.len() * 2 > before.len());
        self.0.retain(|name, proof| {
            !after.contains_key(name) && !deleted.contains(name) && (is_suspicious || asked < *proof)
        });
        let proof = asked + if is_suspicious { MASS_ABSENCE_PROOF } else { ABSENCE_PROOF };
        if is_suspicious {
            self.0.values_mut().for_each(|earlier| *earlier = proof.max(*earlier));
        }
        self.0.extend(lost.into_iter().map(|name| (name.clone(), proof)));
    }

    /// The nodes that are missing and not proven gone.
    pub fn unproven(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::time::Duration;

    fn nodes(names: &str) -> Nodes {
        names.split_whitespace().map(|name| (name.to_owned(), Node::default())).collect()
    }

    /// Lists by second, each as the names that it holds; gives what is in doubt after the last.
    fn doubts(lists: &[(u64, &str)], deleted: &str) -> Vec<String> {
        let (start, mut absences, mut before) = (Instant::now(), Absences::default(), Nodes::new());
        let deleted = deleted.split_whitespace().map(str::to_owned).collect();
        for (second, names) in lists {
            let after = nodes(names);
            absences.compare(&before, &after, &deleted, start + Duration::from_secs(*second));
            before = after;
        }
        absences.unproven().cloned().collect()
    }

    #[rstest]
    #[case::never_seen(&[(0, "a b")], &[])]
    #[case::just_missed(&[(0, "a b c"), (1, "a b")], &["c"])]
    #[case::not_yet_proven(&[(0, "a b c"), (1, "a b"), (20, "a b")], &["c"])]
    #[case::proven(&[(0, "a b c"), (1, "a b"), (21, "a b")], &[])]
    #[case::proof_by_one_late_list(&[(0, "a b c"), (1, "a b"), (500, "a b")], &[])]
    #[case::back(&[(0, "a b c"), (1, "a b"), (2, "a b c")], &[])]
    #[case::missing_again(&[(0, "a b c"), (1, "a b"), (10, "a b c"), (11, "a b"), (22, "a b")], &["c"])]
    #[case::half_is_believed(&[(0, "a b"), (1, "a"), (21, "a")], &[])]
    #[case::more_than_half_is_not(&[(0, "a b c"), (1, "a"), (21, "a"), (60, "a")], &["b", "c"])]
    #[case::until_it_lasts(&[(0, "a b c"), (1, "a"), (61, "a")], &[])]
    #[case::nothing_left(&[(0, "a"), (1, ""), (60, "")], &["a"])]
    #[case::nothing_left_for_long(&[(0, "a"), (1, ""), (61, "")], &[])]
    #[case::a_suspicious_list_proves_nothing(&[(0, "a b c"), (1, "a b"), (21, "")], &["a", "b", "c"])]
    #[case::nor_shortens_a_wait(&[(0, "a b c"), (1, ""), (2, "c"), (3, "")], &["a", "b", "c"])]
    #[case::always_empty(&[(0, ""), (1, "")], &[])]
    fn a_node_is_gone_when_lists_apart_from_each_other_lack_it(
        #[case] lists: &[(u64, &str)],
        #[case] expected: &[&str],
    ) {
        assert_eq!(doubts(lists, ""), expected);
    }

    #[rstest]
    #[case::alone(&[(0, "a b c"), (1, "a b")], "c", &[])]
    #[case::all(&[(0, "a b c"), (1, "")], "a b c", &[])]
    #[case::others_too(&[(0, "a b c d e"), (1, "c d e")], "a", &["b"])]
    #[case::the_rest_all_at_once(&[(0, "a b c d e"), (1, ""), (21, "")], "a b c d", &["e"])]
    fn what_slurm_deleted_needs_no_further_proof(
        #[case] lists: &[(u64, &str)],
        #[case] deleted: &str,
        #[case] expected: &[&str],
    ) {
        assert_eq!(doubts(lists, deleted), expected);
    }
}
