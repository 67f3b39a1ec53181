//! What we rely on, said once and asked of every Slurm: of the one in memory, of the one behind its socket, and of a
//! real slurmctld with two slurmds.
//!
//! A [`TestCluster`] is left as it was found: two live nodes, idle, without comment, jobs or reservations.

mod access;
mod jobs;
mod nodes;
mod reservations;
mod test_cluster;

pub use test_cluster::TestCluster;

use anyhow::{Context, Result};

/// Runs every case; the first that fails ends it, with its name.
pub async fn run(cluster: &TestCluster) -> Result<()> {
    macro_rules! run_each {
        ($($case:path),+ $(,)?) => {
            $(
                cluster.tidy_up().await.context("tidying up")?;
                $case(cluster).await.context(stringify!($case))?;
            )+
        };
    }
    run_each![
        access::controllers_answer_and_take_our_token,
        access::a_wrong_key_looks_like_dead_controllers_until_asked_properly,
        access::other_users_may_look_but_not_touch,
        access::reconfigure_answers_when_done,
        nodes::an_unknown_node_is_not_shown_and_not_changed,
        nodes::a_drain_keeps_its_latest_reason,
        nodes::undrain_and_idle_undo_anybodys_drain,
        nodes::resume_is_refused_on_a_node_at_work,
        nodes::down_and_drain_are_independent,
        nodes::comments_are_kept_as_they_are,
        nodes::active_features_are_a_subset,
        nodes::many_nodes_change_in_one_request,
        nodes::a_refused_request_changes_some_nodes_all_the_same,
        nodes::lists_tell_whether_anything_changed,
        nodes::a_record_is_deleted_once_and_for_all,
        jobs::a_job_keeps_its_node_until_it_ends,
        jobs::an_unlimited_job_never_ends_by_itself,
        jobs::down_takes_the_job_off_the_node,
        jobs::a_single_read_counts_late,
        jobs::partitions_tell_whether_they_take_jobs,
        reservations::one_is_made_changed_and_deleted,
        reservations::an_active_one_changes_its_nodes_only,
        reservations::one_needs_known_nodes,
    ];
    cluster.tidy_up().await
}
