//! Changes of the fake cluster without a request: slurmds start and stop, jobs end, time passes.

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
async fn node_of_a_dead_slurmd_is_not_responding_then_down_until_resumed() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let as_of = fake.client().list_nodes().await.unwrap().as_of.unwrap();
    fake.stop_slurmd("w0");
    assert!(!node(&fake, "w0").await.is(&NodeState::NotResponding));
    advance(Duration::from_secs(20)).await;
    let observed = fake.client().list_nodes_since(as_of).await.unwrap().unwrap().nodes;
    assert!(observed[0].is(&NodeState::NotResponding) && observed[0].is(&NodeState::Idle), "{observed:?}");
    advance(Duration::from_secs(20)).await;
    let observed = node(&fake, "w0").await;
    assert!(observed.is(&NodeState::Down) && observed.is(&NodeState::NotResponding), "{observed:?}");
    assert_eq!((observed.reason.as_str(), observed.reason_set_by_user.as_str()), ("Not responding", "slurm"));
    fake.start_slurmd("w0");
    let returned = node(&fake, "w0").await;
    assert!(returned.is(&NodeState::Down) && !returned.is(&NodeState::NotResponding), "{returned:?}");
    assert!(returned.slurmd_start_time > observed.slurmd_start_time);
    fake.client().update_nodes(&["w0"], &NodeUpdate::Resume).await.unwrap();
    let resumed = node(&fake, "w0").await;
    assert!(resumed.is(&NodeState::Idle) && resumed.reason.is_empty(), "{resumed:?}");
}

#[tokio::test(start_paused = true)]
async fn job_is_requeued_once_its_node_is_down() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let id = fake.submit_job(&["w0"], 1, Some(5));
    fake.stop_slurmd("w0");
    advance(Duration::from_secs(20)).await;
    assert!(job(&fake, id).await.holds_nodes() && fake.is_busy("w0"));
    advance(Duration::from_secs(20)).await;
    let observed = job(&fake, id).await;
    assert!(!observed.holds_nodes() && !fake.is_busy("w0"), "{observed:?}");
}

#[tokio::test(start_paused = true)]
async fn deleted_node_registers_again_when_its_slurmd_restarts() {
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
async fn job_waits_until_the_completing_job_releases_the_node() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    let first = fake.submit_job(&["w0"], 2, Some(5));
    let second = fake.submit_job(&["w0"], 1, None);
    assert!(job(&fake, first).await.holds_nodes() && !job(&fake, second).await.holds_nodes());
    fake.start_completing_job(first);
    let observed = node(&fake, "w0").await;
    assert!(observed.is(&NodeState::Completing) && observed.is_busy(), "{observed:?}");
    assert!(job(&fake, first).await.holds_nodes() && !job(&fake, second).await.holds_nodes());
    fake.end_job(first);
    assert!(!job(&fake, first).await.holds_nodes() && job(&fake, second).await.holds_nodes());
    assert!(node(&fake, "w0").await.is(&NodeState::Mixed));
}

#[tokio::test(start_paused = true)]
async fn requeued_job_starts_after_two_minutes() {
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
async fn slurmctld_that_lost_its_state_lists_no_nodes_and_jobs() {
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

#[tokio::test(start_paused = true)]
async fn suspended_job_holds_its_node_although_the_state_does_not_show_it() {
    let fake = FakeSlurm::new();
    fake.start_slurmd("w0");
    fake.start_slurmd("w1");
    let id = fake.submit_job(&["w0"], 1, None);
    let as_of = fake.client().list_nodes().await.unwrap().as_of.unwrap();
    fake.suspend_job(id);
    let suspended = fake.client().list_nodes_since(as_of).await.unwrap().unwrap().nodes;
    let states = suspended.iter().map(|node| (node.is(&NodeState::Idle), node.is_busy()));
    assert!(states.eq([(true, true), (true, false)]), "{suspended:?}");
    assert_eq!(suspended[0].hidden_job, Some(id.to_string()));
    fake.resume_job(id);
    let resumed = node(&fake, "w0").await;
    assert!(resumed.is(&NodeState::Mixed) && resumed.hidden_job.is_none(), "{resumed:?}");
    fake.suspend_job(id);
    fake.end_job(id);
    assert!(!node(&fake, "w0").await.is_busy());
}
