//! Which replica owns a Slurm cluster: a function of the live replicas alone, so that all of them agree without
//! communication. A replica that joins or leaves moves only its own clusters.

use crate::messages::{Epoch, ReplicaId};
use crate::stable_hash::stable_hash;
use std::sync::Arc;

/// What a replica may work on now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Every cluster: no other replica is active.
    All,
    /// The clusters that these members give to the replica.
    Shared {
        /// The replica that asks.
        replica: ReplicaId,
        /// The live replicas, as far as this one knows; empty before the first membership.
        members: Arc<[ReplicaId]>,
        /// The epoch of the service that has this replica in its membership right now. If there is none, another replica
        /// may have taken over its clusters.
        epoch: Option<Epoch>,
    },
}

impl Ownership {
    /// Whether the replica works on the NodeSets of a cluster.
    pub fn owns(&self, cluster_key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Shared { replica, members, .. } => owner_of(cluster_key, members.as_ref()) == Some(replica),
        }
    }

    /// Whether the owners of clusters are known: not before the first membership.
    pub fn is_known(&self) -> bool {
        match self {
            Self::All => true,
            Self::Shared { members, .. } => !members.is_empty(),
        }
    }

    /// Whether no other replica can have taken over the clusters of this one.
    pub fn is_joined(&self) -> bool {
        matches!(self, Self::All | Self::Shared { epoch: Some(_), .. })
    }

    /// The epoch that this replica has joined.
    pub fn epoch(&self) -> Option<&Epoch> {
        match self {
            Self::All => None,
            Self::Shared { epoch, .. } => epoch.as_ref(),
        }
    }
}

/// The live replica that owns a cluster key, by rendezvous hashing; `None` if no replica is live.
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
    fn owners_are_pinned_across_versions_of_the_binary(#[case] key: &str, #[case] owner: &str) {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        assert_eq!(owner_of(key, &live), Some(&ReplicaId::from(owner)));
    }

    #[test]
    fn cluster_has_no_owner_without_live_replicas() {
        assert_eq!(owner_of("slurm/a", []), None);
    }

    #[test]
    fn owner_does_not_depend_on_the_order_of_replicas() {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        for key in (0..100).map(|number| format!("slurm/{number}")) {
            assert_eq!(owner_of(&key, &live), owner_of(&key, live.iter().rev()));
        }
    }

    #[test]
    fn leaving_replica_moves_only_its_own_clusters() {
        let live = replicas(&["r-0", "r-1", "r-2"]);
        for key in (0..100).map(|number| format!("slurm/{number}")) {
            let before = owner_of(&key, &live).unwrap();
            let after = owner_of(&key, &live[..2]).unwrap();
            assert!(before == after || before == &live[2], "{key} moved from {before:?} to {after:?}");
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
