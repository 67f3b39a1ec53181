//! What happens in the fake's world without a request: daemons that come and go, jobs that end, time that passes.

#![expect(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

use slurm_fake::FakeSlurm;
use slurm_rest::{Job, Node, NodeState, NodeUpdate};
use std::time::Duration;
use tokio::time::advance;

async fn node(fake: &FakeSlurm, name: &str) -> Node {
    let nodes = fake.client().list_nodes().await.unwrap().nodes;
    nodes.into_iter().find(|node| node.name == name).unwrap()
}

async fn job(fake: &FakeSlurm, id: i64) -> Job {
    fake.client().list_jobs().await.unwrap().into_iter().find(|job| job.job_id == id).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_dead_slurmd_is_noticed_then_down_and_stays_so_until_resumed() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let as_of = fake.client().list_nodes().await.unwrap().as_of.unwrap();
    fake.stop_slurmd("w0");
    assert!(!node(&fake, "w0").await.is(&NodeState::NotResponding));
    advance(Duration::from_secs(20)).await;
    let seen = fake.client().list_nodes_since(as_of).await.unwrap().unwrap().nodes;
    assert!(seen[0].is(&NodeState::NotResponding) && seen[0].is(&NodeState::Idle), "{seen:?}");
    advance(Duration::from_secs(20)).await;
    let seen = node(&fake, "w0").await;
    assert!(seen.is(&NodeState::Down) && seen.is(&NodeState::NotResponding), "{seen:?}");
    assert_eq!((seen.reason.as_str(), seen.reason_set_by_user.as_str()), ("Not responding", "slurm"));
    fake.start_slurmd("w0");
    let back = node(&fake, "w0").await;
    assert!(back.is(&NodeState::Down) && !back.is(&NodeState::NotResponding), "{back:?}");
    assert!(back.slurmd_start_time > seen.slurmd_start_time);
    fake.client().update_nodes(&["w0"], &NodeUpdate::Resume).await.unwrap();
    let resumed = node(&fake, "w0").await;
    assert!(resumed.is(&NodeState::Idle) && resumed.reason.is_empty(), "{resumed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_ran_on_a_node_that_falls_silent_runs_elsewhere_once_it_is_down() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let id = fake.submit_job(&["w0"], 1, Some(5));
    fake.stop_slurmd("w0");
    advance(Duration::from_secs(20)).await;
    assert!(job(&fake, id).await.holds_nodes() && fake.is_busy("w0"));
    advance(Duration::from_secs(20)).await;
    let seen = job(&fake, id).await;
    assert!(!seen.holds_nodes() && !fake.is_busy("w0"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_comes_back_empty_when_its_slurmd_restarts() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let client = fake.client();
    client.update_nodes(&["w0"], &NodeUpdate::Comment("kept".to_owned())).await.unwrap();
    client.delete_node("w0").await.unwrap();
    advance(Duration::from_mins(10)).await;
    assert!(client.list_nodes().await.unwrap().nodes.is_empty());
    fake.start_slurmd("w0");
    assert_eq!(node(&fake, "w0").await.comment, "");
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_its_node_and_lingers_on_it() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let first = fake.submit_job(&["w0"], 2, Some(5));
    let second = fake.submit_job(&["w0"], 1, None);
    assert!(job(&fake, first).await.holds_nodes() && !job(&fake, second).await.holds_nodes());
    fake.begin_ending_job(first);
    let seen = node(&fake, "w0").await;
    assert!(seen.is(&NodeState::Completing) && seen.is_busy(), "{seen:?}");
    assert!(job(&fake, first).await.holds_nodes() && !job(&fake, second).await.holds_nodes());
    fake.end_job(first);
    assert!(!job(&fake, first).await.holds_nodes() && job(&fake, second).await.holds_nodes());
    assert!(node(&fake, "w0").await.is(&NodeState::Mixed));
}

#[tokio::test(start_paused = true)]
async fn a_requeued_job_waits_two_minutes() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let id = fake.submit_job(&["w0"], 1, None);
    let client = fake.client();
    client.update_nodes(&["w0"], &NodeUpdate::Down { reason: "gone".to_owned() }).await.unwrap();
    client.update_nodes(&["w0"], &NodeUpdate::Idle).await.unwrap();
    assert!(!job(&fake, id).await.holds_nodes());
    advance(Duration::from_mins(2)).await;
    assert!(job(&fake, id).await.holds_nodes());
}

#[tokio::test(start_paused = true)]
async fn a_slurmctld_without_memory_knows_nobody() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    fake.submit_job(&["w0"], 1, None);
    fake.lose_state();
    let client = fake.client();
    assert!(client.list_nodes().await.unwrap().nodes.is_empty());
    assert!(client.list_jobs().await.unwrap().is_empty());
    fake.start_slurmd("w0");
    assert!(node(&fake, "w0").await.is(&NodeState::Idle));
}
