//! Jobs, as seen on their nodes.

use super::TestCluster;
use super::test_cluster::eventually;
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use slurm_rest::{Deadline, Job, JobState, NodeState, NodeUpdate, SlurmClient, errno};

async fn get_job(client: &SlurmClient, id: i64) -> Result<Job> {
    let jobs = client.list_jobs().await?;
    jobs.into_iter().find(|job| job.job_id == id).with_context(|| format!("job {id} is forgotten"))
}

async fn running(cluster: &TestCluster, client: &SlurmClient, cpus: u32, minutes: Option<u32>) -> Result<Job> {
    let id = cluster.submit(&cluster.nodes[0], cpus, minutes).await?;
    eventually("the job runs", || get_job(client, id), |job| job.is(&JobState::Running)).await
}

pub async fn a_job_keeps_its_node_until_it_ends(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, other] = &cluster.nodes;
    let job = running(cluster, &client, 1, Some(5)).await?;
    ensure!(job.node_names()? == [name.clone()] && job.names_partition("all"), "{job:?}");
    let start = job.start_time.context("a running job without a start")?;
    ensure!(job.deadline() == Some(Deadline::At(start + SignedDuration::from_mins(5))), "{job:?}");
    let node = cluster.listed(name).await?;
    ensure!(node.is(&NodeState::Mixed) && node.is_busy(), "{node:?}");
    ensure!(!cluster.listed(other).await?.is_busy(), "the other node is busy");

    client.update_nodes(&[name], &NodeUpdate::Drain { reason: "soon".to_owned() }).await?;
    let node = cluster.listed(name).await?;
    ensure!(node.is(&NodeState::Drain) && node.is_busy() && !node.is_drained(), "{node:?}");
    let idle = client.update_nodes(&[name], &NodeUpdate::Idle).await;
    let refused = idle.as_ref().is_err_and(|error| error.is_rejected_with(errno::INVALID_NODE_TRANSITION));
    ensure!(refused, "{idle:?}");
    let delete = client.delete_node(name).await;
    ensure!(delete.as_ref().is_err_and(|error| error.is_rejected_with(errno::NODES_BUSY)), "{delete:?}");
    let node = cluster.listed(name).await?;
    ensure!(node.is(&NodeState::Drain) && node.reason == "soon", "{node:?}");

    cluster.cancel(job.job_id).await?;
    eventually("the node is drained", || cluster.listed(name), slurm_rest::Node::is_drained).await?;
    let job = get_job(&client, job.job_id).await?;
    ensure!(!job.holds_nodes(), "{job:?}");
    Ok(())
}

pub async fn an_unlimited_job_never_ends_by_itself(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let job = running(cluster, &client, 2, None).await?;
    ensure!(job.deadline() == Some(Deadline::Never), "{job:?}");
    let node = cluster.listed(&cluster.nodes[0]).await?;
    ensure!(node.is(&NodeState::Allocated), "{node:?}");
    Ok(())
}

pub async fn down_takes_the_job_off_the_node(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let job = running(cluster, &client, 1, Some(5)).await?;
    client.update_nodes(&[name], &NodeUpdate::Down { reason: "gone".to_owned() }).await?;
    let job = eventually("the job is off", || get_job(&client, job.job_id), |job| !job.holds_nodes()).await?;
    ensure!(job.is(&JobState::Pending) && job.nodes.is_empty(), "{job:?}");
    let node = cluster.listed(name).await?;
    ensure!(node.is(&NodeState::Down) && !node.is_busy(), "{node:?}");
    Ok(())
}

pub async fn a_single_read_counts_late(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let job = running(cluster, &client, 1, Some(5)).await?;
    let alone = client.get_node(name).await?.context("not shown")?;
    ensure!(alone.is(&NodeState::Allocated), "half used, and not yet counted: {alone:?}");
    ensure!(cluster.listed(name).await?.is(&NodeState::Mixed), "not counted");
    cluster.cancel(job.job_id).await?;
    let ended = || get_job(&client, job.job_id);
    eventually("the job has ended", ended, |job| !job.holds_nodes()).await?;
    let alone = client.get_node(name).await?.context("not shown")?;
    ensure!(alone.is_busy(), "free, and not yet counted: {alone:?}");
    ensure!(!cluster.listed(name).await?.is_busy(), "not counted");
    Ok(())
}

pub async fn partitions_tell_whether_they_take_jobs(cluster: &TestCluster) -> Result<()> {
    let partitions = cluster.client()?.list_partitions().await?;
    let open: Vec<_> =
        partitions.iter().filter(|one| one.takes_jobs()).map(|one| one.name.as_str()).collect();
    ensure!(open.contains(&"all"), "{partitions:?}");
    Ok(())
}
