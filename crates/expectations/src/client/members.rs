//! The members that a replica computes its ownership from: those of the last membership, and for a while those of the
//! epoch before.
//!
//! A new service knows no replica, and learns of them one after the other. The first one to join would take over every
//! cluster, and lose most of them a moment later. So members of the epoch before count until they would be dead. The
//! service agrees: the owner of a cluster among more members is its owner among fewer, too.

use crate::messages::{Epoch, Membership, ReplicaId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The members that this replica knows.
#[derive(Clone, Debug, Default)]
pub struct Members {
    latest: Option<Membership>,
    /// Live replicas of the epoch before, and until when they count.
    earlier: Option<(Vec<ReplicaId>, Duration)>,
}

impl Members {
    /// The epoch of the last membership.
    pub fn epoch(&self) -> Option<&Epoch> {
        self.latest.as_ref().map(|latest| &latest.epoch)
    }

    /// The last membership.
    pub fn latest(&self) -> Option<&Membership> {
        self.latest.as_ref()
    }

    /// Takes a membership of the service that this replica joined. One that was overtaken by a later one is ignored.
    pub fn update(&mut self, membership: Membership, now: Duration, dead_after: Duration) {
        match &self.latest {
            Some(latest) if latest.epoch == membership.epoch && latest.version > membership.version => return,
            Some(latest) if latest.epoch == membership.epoch => {}
            Some(_) => self.earlier = Some((self.live(now).to_vec(), now.saturating_add(dead_after))),
            None => {}
        }
        self.latest = Some(membership);
    }

    /// All replicas that count as live, sorted.
    pub fn live(&self, now: Duration) -> Arc<[ReplicaId]> {
        let earlier = self.earlier.iter().filter(|(_, until)| now < *until).flat_map(|(live, _)| live);
        let latest = self.latest.iter().flat_map(|latest| &latest.live);
        latest.chain(earlier).cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// When the members of the epoch before no longer count; `None` if that is over.
    pub fn changes_at(&self, now: Duration) -> Option<Duration> {
        self.earlier.as_ref().map(|(_, until)| *until).filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::Members;
    use crate::messages::{Membership, ReplicaId};
    use crate::ownership::owner_of;
    use std::time::Duration;

    const DEAD_AFTER: Duration = Duration::from_secs(6);

    fn membership(epoch: &str, version: u64, live: &[&str]) -> Membership {
        Membership {
            epoch: epoch.into(),
            version,
            live: live.iter().map(|replica| ReplicaId::from(*replica)).collect(),
            lease: Duration::from_secs(25),
            grace: Duration::from_secs(35),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn names(members: &Members, now: u64) -> Vec<String> {
        members.live(seconds(now)).iter().map(|replica| replica.as_str().to_owned()).collect()
    }

    #[test]
    fn older_version_of_the_same_epoch_is_ignored() {
        let mut members = Members::default();
        members.update(membership("e", 2, &["a", "b"]), seconds(0), DEAD_AFTER);
        members.update(membership("e", 1, &["a"]), seconds(1), DEAD_AFTER);
        assert_eq!(names(&members, 1), ["a", "b"]);
        members.update(membership("e", 3, &["b"]), seconds(2), DEAD_AFTER);
        assert_eq!(names(&members, 2), ["b"]);
    }

    #[test]
    fn members_of_the_epoch_before_count_until_they_would_be_dead() {
        let mut members = Members::default();
        members.update(membership("e", 9, &["a", "b", "c"]), seconds(0), DEAD_AFTER);
        members.update(membership("f", 1, &["b"]), seconds(100), DEAD_AFTER);
        assert_eq!(names(&members, 100), ["a", "b", "c"]);
        assert_eq!(members.changes_at(seconds(100)), Some(seconds(106)));
        members.update(membership("f", 2, &["a", "b"]), seconds(101), DEAD_AFTER);
        assert_eq!(names(&members, 105), ["a", "b", "c"]);
        assert_eq!(names(&members, 106), ["a", "b"]);
        assert_eq!(members.changes_at(seconds(106)), None);
    }

    #[test]
    fn two_new_epochs_in_a_row_do_not_revive_a_replica() {
        let mut members = Members::default();
        members.update(membership("e", 1, &["a", "b"]), seconds(0), DEAD_AFTER);
        members.update(membership("f", 1, &["a"]), seconds(10), DEAD_AFTER);
        members.update(membership("g", 1, &["a"]), seconds(20), DEAD_AFTER);
        assert_eq!(names(&members, 20), ["a"]);
    }

    /// A new service that knows one replica agrees with what that replica owns among all members.
    #[test]
    fn cluster_owned_among_all_members_is_owned_among_some_of_them() {
        let all: Vec<ReplicaId> = ["a", "b", "c"].map(ReplicaId::from).to_vec();
        for key in (0..100).map(|number| format!("slurm/{number}")) {
            let owner = owner_of(&key, &all).unwrap();
            assert_eq!(owner_of(&key, [owner]), Some(owner));
            for other in &all {
                assert_eq!(owner_of(&key, [owner, other]), Some(owner));
            }
        }
    }
}
