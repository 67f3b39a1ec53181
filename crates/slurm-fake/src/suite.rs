//! The Slurm behaviour that the operator relies on, tested against the fake, the fake on a socket, and a real slurmctld
//! with two slurmds.
//!
//! Every case starts from, and the suite ends with, two live idle nodes without comments, jobs or reservations.

mod access;
mod jobs;
mod nodes;
mod reservations;
mod test_cluster;

pub use test_cluster::TestCluster;

use anyhow::{Context, Result};

/// Runs every case; returns the first error with the name of its case.
pub async fn run(cluster: &TestCluster) -> Result<()> {
    macro_rules! run_each {
        ($($case:path),+ $(,)?) => {
            $(
                cluster.reset().await.context("resetting the cluster")?;
                $case(cluster).await.context(stringify!($case))?;
            )+
        };
    }
    run_each![
        access::slurmctld_answers_and_accepts_our_token,
        access::wrong_key_shows_as_not_responding_in_ping_and_unauthorized_elsewhere,
        access::other_users_may_read_but_not_write,
        access::reconfigure_returns_when_done,
        nodes::unknown_node_is_not_found,
        nodes::drain_keeps_its_latest_reason,
        nodes::undrain_idle_and_resume_clear_the_drain_of_any_user,
        nodes::resume_of_a_node_in_service_is_rejected,
        nodes::down_and_drain_are_independent,
        nodes::comments_are_stored_verbatim,
        nodes::active_features_must_be_available,
        nodes::one_request_updates_many_nodes,
        nodes::rejected_update_of_several_nodes_changes_some,
        nodes::list_since_returns_only_changes,
        nodes::deleting_a_node_record_is_idempotent,
        jobs::job_holds_its_node_until_it_ends,
        jobs::job_without_limit_has_no_deadline,
        jobs::down_requeues_the_job_of_the_node,
        jobs::single_node_read_shows_a_stale_allocation,
        jobs::partition_that_is_up_accepts_jobs,
        reservations::reservation_is_created_updated_and_deleted,
        reservations::only_the_nodes_of_an_active_reservation_can_change,
        reservations::reservation_needs_existing_nodes,
    ];
    cluster.reset().await
}
