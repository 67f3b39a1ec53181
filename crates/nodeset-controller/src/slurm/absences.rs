//! Nodes that are missing from the last lists: decides when that proves that they do not exist. Pure.

use crate::timing::{ABSENCE_PROOF, MASS_ABSENCE_PROOF};
use slurm_rest::Node;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// All nodes of a cluster, by name.
pub type Nodes = BTreeMap<String, Node>;

/// Nodes missing from the last list, each with the time from which a list without it proves its absence.
#[derive(Debug, Default)]
pub struct Absences(BTreeMap<String, Instant>);

impl Absences {
    /// Records a list that was requested at `requested_at`. Slurm confirmed the deletion of the nodes in `deleted`.
    pub fn compare(
        &mut self,
        before: &Nodes,
        after: &Nodes,
        deleted: &BTreeSet<String>,
        requested_at: Instant,
    ) {
        let is_missing = |name: &&String| !after.contains_key(*name) && !deleted.contains(*name);
        let missing: Vec<&String> = before.keys().filter(is_missing).collect();
        // A list that lacks most nodes is more likely to be incomplete than right.
        let is_suspicious = !missing.is_empty() && (after.is_empty() || missing.len() * 2 > before.len());
        self.0.retain(|name, proof| {
            !after.contains_key(name) && !deleted.contains(name) && (is_suspicious || requested_at < *proof)
        });
        let proof = requested_at + if is_suspicious { MASS_ABSENCE_PROOF } else { ABSENCE_PROOF };
        if is_suspicious {
            self.0.values_mut().for_each(|earlier| *earlier = proof.max(*earlier));
        }
        self.0.extend(missing.into_iter().map(|name| (name.clone(), proof)));
    }

    /// The missing nodes whose absence is not proven.
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

    /// Compares lists, given as second and names; returns the nodes that are unproven after the last.
    fn unproven_after(lists: &[(u64, &str)], deleted: &str) -> Vec<String> {
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
    #[case::missing_once(&[(0, "a b c"), (1, "a b")], &["c"])]
    #[case::before_the_proof(&[(0, "a b c"), (1, "a b"), (20, "a b")], &["c"])]
    #[case::proven(&[(0, "a b c"), (1, "a b"), (21, "a b")], &[])]
    #[case::proven_by_one_late_list(&[(0, "a b c"), (1, "a b"), (500, "a b")], &[])]
    #[case::registered_again(&[(0, "a b c"), (1, "a b"), (2, "a b c")], &[])]
    #[case::missing_a_second_time(&[(0, "a b c"), (1, "a b"), (10, "a b c"), (11, "a b"), (22, "a b")], &["c"])]
    #[case::loss_of_half_is_accepted(&[(0, "a b"), (1, "a"), (21, "a")], &[])]
    #[case::loss_of_more_needs_longer_proof(&[(0, "a b c"), (1, "a"), (21, "a"), (60, "a")], &["b", "c"])]
    #[case::longer_proof(&[(0, "a b c"), (1, "a"), (61, "a")], &[])]
    #[case::empty_list(&[(0, "a"), (1, ""), (60, "")], &["a"])]
    #[case::empty_lists_for_a_minute(&[(0, "a"), (1, ""), (61, "")], &[])]
    #[case::suspicious_list_proves_nothing(&[(0, "a b c"), (1, "a b"), (21, "")], &["a", "b", "c"])]
    #[case::suspicious_list_extends_earlier_waits(&[(0, "a b c"), (1, ""), (2, "c"), (3, "")], &["a", "b", "c"])]
    #[case::always_empty(&[(0, ""), (1, "")], &[])]
    fn absence_is_proven_by_lists_that_are_far_enough_apart(
        #[case] lists: &[(u64, &str)],
        #[case] expected: &[&str],
    ) {
        assert_eq!(unproven_after(lists, ""), expected);
    }

    #[rstest]
    #[case::only_the_deleted_node(&[(0, "a b c"), (1, "a b")], "c", &[])]
    #[case::all(&[(0, "a b c"), (1, "")], "a b c", &[])]
    #[case::other_nodes_missing_too(&[(0, "a b c d e"), (1, "c d e")], "a", &["b"])]
    #[case::all_others_missing(&[(0, "a b c d e"), (1, ""), (21, "")], "a b c d", &["e"])]
    fn confirmed_deletion_needs_no_further_proof(
        #[case] lists: &[(u64, &str)],
        #[case] deleted: &str,
        #[case] expected: &[&str],
    ) {
        assert_eq!(unproven_after(lists, deleted), expected);
    }
}
