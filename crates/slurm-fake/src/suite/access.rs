//! Who answers, and to whom.

use super::Lab;
use anyhow::{Result, ensure};
use slurm_jwt::SigningKey;
use slurm_rest::{Error, NodeUpdate, errno};

pub async fn controllers_answer_and_take_our_token(lab: &Lab) -> Result<()> {
    let client = lab.client()?;
    let pings = client.ping().await?;
    ensure!(pings.len() == 1 && pings[0].responding && pings[0].primary, "{pings:?}");
    client.confirm_access().await?;
    Ok(())
}

pub async fn a_wrong_key_looks_like_dead_controllers_until_asked_properly(lab: &Lab) -> Result<()> {
    let client = lab.client_as("slurm", b"no key of this cluster")?;
    let pings = client.ping().await?;
    ensure!(pings.len() == 1 && !pings[0].responding, "{pings:?}");
    let [name, _] = &lab.nodes;
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
    ensure!(lab.listed(name).await?.comment.is_empty(), "the comment was written");
    client.replace_key(SigningKey::new(&lab.key)?);
    client.confirm_access().await?;
    Ok(())
}

pub async fn other_users_may_look_but_not_touch(lab: &Lab) -> Result<()> {
    let client = lab.client_as("nobody", &lab.key)?;
    let [name, _] = &lab.nodes;
    ensure!(client.get_node(name).await?.is_some(), "{name} is not shown");
    let refused = client.update_nodes(&[name], &NodeUpdate::Drain { reason: "mine".to_owned() }).await;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(errno::NO_PRIVILEGE)), "{refused:?}");
    ensure!(lab.listed(name).await?.reason.is_empty(), "the node was drained");
    Ok(())
}

pub async fn reconfigure_answers_when_done(lab: &Lab) -> Result<()> {
    let before = lab.listed(&lab.nodes[0]).await?;
    lab.client()?.reconfigure().await?;
    let after = lab.listed(&lab.nodes[0]).await?;
    ensure!(after.state == before.state, "{before:?} became {after:?}");
    Ok(())
}
