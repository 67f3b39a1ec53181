//! Follows what this replica owns: takes up the NodeSets of clusters that it gained, and drops the state of those that
//! it lost.

use super::Context;
use crate::slurm::ClusterKey;
use expectations::Ownership;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use kube::runtime::reflector::ObjectRef;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;
use tracing::info;

/// What has to happen with the NodeSets of a cluster after a change of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// This replica gained them, or can request batches for them again.
    Enqueue,
    /// Another replica works on them.
    Release,
    Nothing,
}

fn change(key: &str, before: &Ownership, now: &Ownership) -> Change {
    // Writes may wait for the service, and a new epoch may grant what the one before did not.
    let has_joined = now.is_joined() && before.epoch() != now.epoch();
    match (before.owns(key), now.owns(key)) {
        (false, true) => Change::Enqueue,
        (true, true) if has_joined => Change::Enqueue,
        (true, false) => Change::Release,
        (true, true) | (false, false) => Change::Nothing,
    }
}

/// Follows changes of ownership until the process ends.
pub async fn follow(context: &Context, enqueue: &UnboundedSender<ObjectRef<NodeSet>>) {
    let coordination = context.coordination();
    let mut changes = coordination.expectations.ownership_changes();
    let mut before = coordination.ownership();
    while changes.next().await.is_some() {
        let now = coordination.ownership();
        if now.is_joined() && before.epoch() != now.epoch() {
            context.runner.resume();
        }
        let mut clusters = BTreeMap::new();
        for nodeset in context.sources.nodesets.state() {
            let key = ClusterKey::of(&nodeset);
            let change =
                clusters.entry(key).or_insert_with_key(|key| change(&key.to_string(), &before, &now));
            match change {
                // The receiver is dropped when the process ends.
                Change::Enqueue => drop(enqueue.unbounded_send(ObjectRef::from_obj(nodeset.as_ref()))),
                Change::Release => context.forget_if_gone(&nodeset),
                Change::Nothing => {}
            }
        }
        for (key, _) in clusters.iter().filter(|(_, change)| **change == Change::Release) {
            info!(cluster = %key, "Another replica owns the cluster now");
            coordination.give_up(key);
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, change};
    use expectations::{Epoch, Ownership};
    use rstest::rstest;

    /// The ownership of replica `r-1`.
    fn among(members: &[&str], epoch: Option<&str>) -> Ownership {
        Ownership::Shared {
            replica: "r-1".into(),
            members: members.iter().map(|member| (*member).into()).collect(),
            epoch: epoch.map(Epoch::from),
        }
    }

    #[rstest]
    // Among r-0, r-1 and r-2 the owner of slurm/a is r-1, that of slurm/b is r-0.
    #[case::first_membership("slurm/a", among(&[], None), among(&["r-0", "r-1"], Some("e")), Change::Enqueue)]
    #[case::owner_died("slurm/b", among(&["r-0", "r-1"], Some("e")), among(&["r-1"], Some("e")), Change::Enqueue)]
    #[case::owner_joined("slurm/b", among(&["r-1"], Some("e")), among(&["r-0", "r-1"], Some("e")), Change::Release)]
    #[case::another_joined(
        "slurm/a", among(&["r-1"], Some("e")), among(&["r-0", "r-1"], Some("e")), Change::Nothing
    )]
    #[case::join_lost("slurm/a", among(&["r-1"], Some("e")), among(&["r-1"], None), Change::Nothing)]
    #[case::join_is_back("slurm/a", among(&["r-1"], None), among(&["r-1"], Some("e")), Change::Enqueue)]
    #[case::new_epoch("slurm/a", among(&["r-1"], Some("e")), among(&["r-1"], Some("f")), Change::Enqueue)]
    #[case::new_epoch_of_others(
        "slurm/b", among(&["r-0", "r-1"], Some("e")), among(&["r-0", "r-1"], Some("f")), Change::Nothing
    )]
    fn gained_clusters_are_enqueued_and_lost_ones_released(
        #[case] key: &str,
        #[case] before: Ownership,
        #[case] now: Ownership,
        #[case] expected: Change,
    ) {
        assert_eq!(change(key, &before, &now), expected);
    }
}
