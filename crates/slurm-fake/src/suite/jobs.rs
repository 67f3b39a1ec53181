//! Jobs and their effect on nodes.

use super::TestCluster;
use super::test_cluster::eventually;
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use slurm_rest::{Deadline, Job, JobState, NodeState, NodeUpdate, SlurmClient, errno};

async fn get_job(client: &SlurmClient, id: i64) -> Result<Job> {
    let jobs = client.list_jobs().await?;
    jobs.into_iter().find(|job| job.job_id == id).with_context(|| format!("job {id} is not listed"))
}

async fn start_job(
    cluster: &TestCluster,
    client: &SlurmClient,
    cpus: u32,
    minutes: Option<u32>,
) -> Result<Job> {
    let id = cluster.submit(&cluster.nodes[0], cpus, minutes).await?;
    eventually("the job runs", || get_job(client, id), |job| job.is(&JobState::Running)).await
}

pub async fn job_holds_its_node_until_it_ends(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, other] = &cluster.nodes;
    let job = start_job(cluster, &client, 1, Some(5)).await?;
    ensure!(job.node_names()? == [name.clone()] && job.names_partition("all"), "{job:?}");
    let start = job.start_time.context("a running job without a start")?;
    ensure!(job.deadline() == Some(Deadline::At(start + SignedDuration::from_mins(5))), "{job:?}");
    let node = cluster.get_listed(name).await?;
    ensure!(node.is(&NodeState::Mixed) && node.is_busy(), "{node:?}");
    ensure!(!cluster.get_listed(other).await?.is_busy(), "the other node is busy");

    client.update_nodes(&[name], &NodeUpdate::Drain { reason: "soon".to_owned() }).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(node.is(&NodeState::Drain) && node.is_busy() && !node.is_drained(), "{node:?}");
    let idle = client.update_nodes(&[name], &NodeUpdate::Idle).await;
    let rejected = idle.as_ref().is_err_and(|error| error.is_rejected_with(errno::INVALID_NODE_TRANSITION));
    ensure!(rejected, "{idle:?}");
    let delete = client.delete_node(name).await;
    ensure!(delete.as_ref().is_err_and(|error| error.is_rejected_with(errno::NODES_BUSY)), "{delete:?}");
    let node = cluster.get_listed(name).await?;
    ensure!(node.is(&NodeState::Drain) && node.reason == "soon", "{node:?}");

    cluster.cancel(job.job_id).await?;
    eventually("the node is drained", || cluster.get_listed(name), slurm_rest::Node::is_drained).await?;
    let job = get_job(&client, job.job_id).await?;
    ensure!(!job.holds_nodes(), "{job:?}");
    Ok(())
}

pub async fn job_without_limit_has_no_deadline(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let job = start_job(cluster, &client, 2, None).await?;
    ensure!(job.deadline() == Some(Deadline::Never), "{job:?}");
    let node = cluster.get_listed(&cluster.nodes[0]).await?;
    ensure!(node.is(&NodeState::Allocated), "{node:?}");
    Ok(())
}

pub async fn down_requeues_the_job_of_the_node(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let job = start_job(cluster, &client, 1, Some(5)).await?;
    client.update_nodes(&[name], &NodeUpdate::Down { reason: "gone".to_owned() }).await?;
    let job =
        eventually("the job has left the node", || get_job(&client, job.job_id), |job| !job.holds_nodes())
            .await?;
    ensure!(job.is(&JobState::Pending) && job.nodes.is_empty(), "{job:?}");
    let node = cluster.get_listed(name).await?;
    ensure!(node.is(&NodeState::Down) && !node.is_busy(), "{node:?}");
    Ok(())
}

pub async fn single_node_read_shows_a_stale_allocation(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let job = start_job(cluster, &client, 1, Some(5)).await?;
    let alone = client.get_node(name).await?.context("the node is not found")?;
    ensure!(alone.is(&NodeState::Allocated), "the partial allocation is counted before a list: {alone:?}");
    ensure!(cluster.get_listed(name).await?.is(&NodeState::Mixed), "a list does not count allocations");
    cluster.cancel(job.job_id).await?;
    let ended = || get_job(&client, job.job_id);
    eventually("the job has ended", ended, |job| !job.holds_nodes()).await?;
    let alone = client.get_node(name).await?.context("the node is not found")?;
    ensure!(alone.is_busy(), "the end of the job is counted before a list: {alone:?}");
    ensure!(!cluster.get_listed(name).await?.is_busy(), "a list does not count allocations");
    Ok(())
}

pub async fn partition_that_is_up_accepts_jobs(cluster: &TestCluster) -> Result<()> {
    let partitions = cluster.client()?.list_partitions().await?;
    let open: Vec<_> =
        partitions.iter().filter(|one| one.takes_jobs()).map(|one| one.name.as_str()).collect();
    ensure!(open.contains(&"all"), "{partitions:?}");
    Ok(())
}
