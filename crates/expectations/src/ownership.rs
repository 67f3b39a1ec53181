//! Which replica works on a Slurm cluster: a function of the live replicas alone, so that all of them agree without
//! asking each other, and one that comes or goes moves no cluster but its own.

use crate::messages::ReplicaId;
use crate::stable_hash::stable_hash;

/// The live replica that a cluster key belongs to, by rendezvous hashing; none if no replica is live.
pub fn owner_of<'a>(
    cluster_key: &str,
    live: impl IntoIterator<Item = &'a ReplicaId>,
) -> Option<&'a ReplicaId> {
    live.into_iter().max_by_key(|replica| (stable_hash([cluster_key, replica.as_str()]), *replica))
}

#[cfg(test)]
mod tests {
    use super::owner_of;
    use crate::messages::ReplicaId;
    use rstest::rstest;
    use std::collections::BTreeMap;

    fn replicas(names: &[&str]) -> Vec<ReplicaId> {
        names.iter().map(|name| ReplicaId::from(*name)).collect()
    }

    #[rstest]
    #[case("slurm/a", "r-1")]
    #[case("slurm/b", "r-0")]
    #[case("slurm/c", "r-1")]
    #[case("other/a", "r-0")]
    #[case("other/d", "r-2")]
    fn owners_are_pinned_because_versions_of_a_binary_run_side_by_side(
        #[case] key: &str,
        #[case] owner: &str,
    ) {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        assert_eq!(owner_of(key, &live), Some(&ReplicaId::from(owner)));
    }

    #[test]
    fn nobody_owns_anything_when_nobody_lives() {
        assert_eq!(owner_of("slurm/a", []), None);
    }

    #[test]
    fn the_order_of_the_replicas_does_not_matter() {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        for key in (0..100).map(|number| format!("slurm/{number}")) {
            assert_eq!(owner_of(&key, &live), owner_of(&key, live.iter().rev()));
        }
    }

    #[test]
    fn a_replica_that_goes_moves_its_own_clusters_only() {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        for key in (0..100).map(|number| format!("slurm/{number}")) {
            let before = owner_of(&key, &live).unwrap();
            let after = owner_of(&key, &live[..2]).unwrap();
            assert!(before == after || before == &live[2], "{key} went from {before} to {after}");
        }
    }

    #[test]
    fn clusters_are_spread_evenly() {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        let mut owned = BTreeMap::new();
        for key in (0..3000).map(|number| format!("slurm/{number}")) {
            *owned.entry(owner_of(&key, &live).unwrap()).or_insert(0) += 1;
        }
        assert!(owned.values().all(|count| (900..1100).contains(count)), "{owned:?}");
    }
}
