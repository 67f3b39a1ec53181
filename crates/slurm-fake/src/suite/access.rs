//! Ping, tokens and privileges.

use super::TestCluster;
use anyhow::{Result, ensure};
use slurm_jwt::SigningKey;
use slurm_rest::{Error, NodeUpdate, errno};

pub async fn slurmctld_answers_and_accepts_our_token(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let pings = client.ping().await?;
    ensure!(pings.len() == 1 && pings[0].responding && pings[0].primary, "{pings:?}");
    client.confirm_access().await?;
    Ok(())
}

pub async fn wrong_key_shows_as_not_responding_in_ping_and_unauthorized_elsewhere(
    cluster: &TestCluster,
) -> Result<()> {
    let client = cluster.client_as("slurm", b"not the key of this cluster")?;
    let pings = client.ping().await?;
    ensure!(pings.len() == 1 && !pings[0].responding, "{pings:?}");
    let [name, _] = &cluster.nodes;
    let update = NodeUpdate::Comment("forged".to_owned());
    let results = [
        client.confirm_access().await,
        client.list_nodes().await.map(drop),
        client.get_node(name).await.map(drop),
        client.list_jobs().await.map(drop),
        client.list_reservations().await.map(drop),
        client.update_nodes(&[name], &update).await,
        client.delete_node(name).await,
        client.reconfigure().await,
    ];
    for result in &results {
        ensure!(matches!(result, Err(Error::Unauthorized(_))), "{result:?}");
    }
    ensure!(cluster.get_listed(name).await?.comment.is_empty(), "the comment was written");
    client.replace_key(SigningKey::new(&cluster.key)?);
    client.confirm_access().await?;
    Ok(())
}

pub async fn other_users_may_read_but_not_write(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client_as("nobody", &cluster.key)?;
    let [name, _] = &cluster.nodes;
    ensure!(client.get_node(name).await?.is_some(), "{name} is not found");
    let rejected = client.update_nodes(&[name], &NodeUpdate::Drain { reason: "mine".to_owned() }).await;
    ensure!(
        rejected.as_ref().is_err_and(|error| error.is_rejected_with(errno::NO_PRIVILEGE)),
        "{rejected:?}"
    );
    ensure!(cluster.get_listed(name).await?.reason.is_empty(), "the node was drained");
    Ok(())
}

pub async fn reconfigure_returns_when_done(cluster: &TestCluster) -> Result<()> {
    let before = cluster.get_listed(&cluster.nodes[0]).await?;
    cluster.client()?.reconfigure().await?;
    let after = cluster.get_listed(&cluster.nodes[0]).await?;
    ensure!(after.state == before.state, "{before:?} became {after:?}");
    Ok(())
}
