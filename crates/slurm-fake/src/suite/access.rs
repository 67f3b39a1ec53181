//! Who answers, and to whom.

use super::TestCluster;
use anyhow::{Result, ensure};
use slurm_jwt::SigningKey;
use slurm_rest::{Error, NodeUpdate, errno};

pub async fn controllers_answer_and_take_our_token(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let pings = client.ping().await?;
    ensure!(pings.len() == 1 && pings[0].responding && pings[0].primary, "{pings:?}");
    client.confirm_access().await?;
    Ok(())
}

pub async fn a_wrong_key_looks_like_dead_controllers_until_asked_properly(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client_as("slurm", b"no key of this cluster")?;
    let pings = client.ping().await?;
    ensure!(pings.len() == 1 && !pings[0].responding, "{pings:?}");
    let [name, _] = &cluster.nodes;
    let update = NodeUpdate::Comment("forged".to_owned());
    let refusals = [
        client.confirm_access().await,
        client.list_nodes().await.map(drop),
        client.get_node(name).await.map(drop),
        client.list_jobs().await.map(drop),
        client.list_reservations().await.map(drop),
        client.update_nodes(&[name], &update).await,
        client.delete_node(name).await,
        client.reconfigure().await,
    ];
    for refusal in &refusals {
        ensure!(matches!(refusal, Err(Error::Unauthorized(_))), "{refusal:?}");
    }
    ensure!(cluster.listed(name).await?.comment.is_empty(), "the comment was written");
    client.replace_key(SigningKey::new(&cluster.key)?);
    client.confirm_access().await?;
    Ok(())
}

pub async fn other_users_may_look_but_not_touch(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client_as("nobody", &cluster.key)?;
    let [name, _] = &cluster.nodes;
    ensure!(client.get_node(name).await?.is_some(), "{name} is not shown");
    let refused = client.update_nodes(&[name], &NodeUpdate::Drain { reason: "mine".to_owned() }).await;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(errno::NO_PRIVILEGE)), "{refused:?}");
    ensure!(cluster.listed(name).await?.reason.is_empty(), "the node was drained");
    Ok(())
}

pub async fn reconfigure_answers_when_done(cluster: &TestCluster) -> Result<()> {
    let before = cluster.listed(&cluster.nodes[0]).await?;
    cluster.client()?.reconfigure().await?;
    let after = cluster.listed(&cluster.nodes[0]).await?;
    ensure!(after.state == before.state, "{before:?} became {after:?}");
    Ok(())
}
