//! Reading and updating nodes.

use super::TestCluster;
use super::test_cluster::eventually;
use anyhow::{Context, Result, ensure};
use slurm_rest::{Error, Node, NodeState, NodeUpdate, errno};

fn drain(reason: &str) -> NodeUpdate {
    NodeUpdate::Drain { reason: reason.to_owned() }
}

fn is_clean(node: &Node) -> bool {
    node.is(&NodeState::Idle) && !node.is(&NodeState::Drain) && node.reason.is_empty()
}

pub async fn unknown_node_is_not_found(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    ensure!(client.get_node("no-such-node").await?.is_none(), "an unknown node is found");
    ensure!(client.get_node(&cluster.nodes[0].to_uppercase()).await?.is_none(), "node names ignore case");
    let update = client.update_nodes(&["no-such-node"], &drain("test")).await;
    ensure!(matches!(update, Err(Error::NotFound(_))), "{update:?}");
    client.delete_node("no-such-node").await?;
    Ok(())
}

pub async fn drain_keeps_its_latest_reason(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let before = cluster.now();
    client.update_nodes(&[name], &drain("first")).await?;
    client.update_nodes(&[name], &drain("second, with \"quotes\"")).await?;
    client.update_nodes(&[name], &drain("")).await?;
    let node = client.get_node(name).await?.context("the node is not found")?;
    ensure!(node.is_drained() && node.reason == "second, with \"quotes\"", "{node:?}");
    ensure!(node.reason_set_by_user == "slurm", "{node:?}");
    let at = node.reason_changed_at.context("the reason has no time")?;
    ensure!((before.as_second()..=cluster.now().as_second()).contains(&at.as_second()), "{before} {at}");
    ensure!(is_clean(&cluster.get_listed(&cluster.nodes[1]).await?), "the other node was changed");
    Ok(())
}

pub async fn undrain_idle_and_resume_clear_the_drain_of_any_user(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    for update in [NodeUpdate::Undrain, NodeUpdate::Idle, NodeUpdate::Resume] {
        client.update_nodes(&[name], &drain("an administrator's")).await?;
        client.update_nodes(&[name], &update).await?;
        let node = cluster.get_listed(name).await?;
        ensure!(is_clean(&node), "{update:?} left {node:?}");
        // After UNDRAIN and RESUME slurmctld pings the slurmd; after IDLE it does not.
        let is_pinged = node.is(&NodeState::NotResponding);
        ensure!(is_pinged == (update != NodeUpdate::Idle), "{update:?} left {node:?}");
        eventually("slurmd answers", || cluster.get_listed(name), |node| !node.is(&NodeState::NotResponding))
            .await?;
    }
    Ok(())
}

pub async fn resume_of_a_node_in_service_is_rejected(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let rejected = client.update_nodes(&[name], &NodeUpdate::Resume).await;
    let expected = errno::INVALID_NODE_TRANSITION;
    ensure!(rejected.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{rejected:?}");
    client.update_nodes(&[name], &NodeUpdate::Idle).await?;
    ensure!(is_clean(&cluster.get_listed(name).await?), "IDLE changed an idle node");
    Ok(())
}

pub async fn down_and_drain_are_independent(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    client.update_nodes(&[name], &NodeUpdate::Down { reason: "gone".to_owned() }).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(node.is(&NodeState::Down) && !node.is_drained() && node.reason == "gone", "{node:?}");
    client.update_nodes(&[name], &drain("and drained")).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(node.is(&NodeState::Down) && node.is_drained() && node.reason == "and drained", "{node:?}");
    client.update_nodes(&[name], &NodeUpdate::Undrain).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(
        node.is(&NodeState::Down) && !node.is(&NodeState::Drain) && node.reason == "and drained",
        "{node:?}"
    );
    client.update_nodes(&[name], &NodeUpdate::Idle).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(is_clean(&node), "{node:?}");
    Ok(())
}

pub async fn comments_are_stored_verbatim(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let text = r#"{"namespace":"a b","podName":"c\\d","node":"ü / \" , = ["}"#;
    client.update_nodes(&[name], &NodeUpdate::Comment(text.to_owned())).await?;
    ensure!(cluster.get_listed(name).await?.comment == text, "{:?}", cluster.get_listed(name).await?.comment);
    client.update_nodes(&[name], &NodeUpdate::Comment(String::new())).await?;
    ensure!(cluster.get_listed(name).await?.comment.is_empty(), "the comment was not removed");
    Ok(())
}

pub async fn active_features_must_be_available(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let before = cluster.get_listed(name).await?;
    let features = |available: &[&str], active: &[&str]| NodeUpdate::Features {
        available: available.iter().map(|name| (*name).to_owned()).collect(),
        active: active.iter().map(|name| (*name).to_owned()).collect(),
    };
    client.update_nodes(&[name], &features(&["k8s/a", "mig=on"], &["k8s/a"])).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(node.features == ["k8s/a", "mig=on"] && node.active_features == ["k8s/a"], "{node:?}");
    let rejected = client.update_nodes(&[name], &features(&["a"], &["b"])).await;
    let expected = errno::INVALID_FEATURES;
    ensure!(rejected.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{rejected:?}");
    ensure!(cluster.get_listed(name).await?.features == node.features, "a rejected change was applied");
    client.update_nodes(&[name], &features(&[], &[])).await?;
    let node = cluster.get_listed(name).await?;
    ensure!(node.features.is_empty() && node.active_features.is_empty(), "{node:?}");
    let restore = NodeUpdate::Features { available: before.features, active: before.active_features };
    client.update_nodes(&[name], &restore).await?;
    Ok(())
}

pub async fn one_request_updates_many_nodes(cluster: &TestCluster) -> Result<()> {
    let [first, second] = &cluster.nodes;
    cluster.client()?.update_nodes(&[second, first], &drain("together")).await?;
    for name in &cluster.nodes {
        let node = cluster.get_listed(name).await?;
        ensure!(node.is_drained() && node.reason == "together", "{node:?}");
    }
    Ok(())
}

/// slurmctld processes the names in alphabetical order, skips a node for which it rejects the change, and stops at an
/// unknown name.
pub async fn rejected_update_of_several_nodes_changes_some(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [first, second] = &cluster.nodes;
    let rejected = client.update_nodes(&[first, "zzz-unknown"], &drain("before")).await;
    let unknown = errno::INVALID_NODE_NAME;
    ensure!(rejected.as_ref().is_err_and(|error| error.is_rejected_with(unknown)), "{rejected:?}");
    ensure!(
        cluster.get_listed(first).await?.reason == "before",
        "the node before the unknown one was not changed"
    );
    let rejected = client.update_nodes(&[first, "000-unknown"], &drain("after")).await;
    ensure!(rejected.as_ref().is_err_and(|error| error.is_rejected_with(unknown)), "{rejected:?}");
    ensure!(
        cluster.get_listed(first).await?.reason == "before",
        "the node after the unknown one was changed"
    );

    client.update_nodes(&[first], &NodeUpdate::Idle).await?;
    client.update_nodes(&[second], &drain("to be resumed")).await?;
    let rejected = client.update_nodes(&[first, second], &NodeUpdate::Resume).await;
    let transition = errno::INVALID_NODE_TRANSITION;
    ensure!(rejected.as_ref().is_err_and(|error| error.is_rejected_with(transition)), "{rejected:?}");
    ensure!(is_clean(&cluster.get_listed(second).await?), "the node after the rejected one was not changed");
    Ok(())
}

pub async fn list_since_returns_only_changes(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    // Changes of the same second are repeated, and slurmds report their load now and then.
    let quiet = || async {
        let as_of = client.list_nodes().await?.as_of.context("the list has no time")?;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let quiet = client.list_nodes_since(as_of).await?.is_none();
        Ok((as_of, quiet))
    };
    let (as_of, _) = eventually("nothing changes", quiet, |(_, quiet)| *quiet).await?;
    client.update_nodes(&[name], &NodeUpdate::Comment("changed".to_owned())).await?;
    let list = client.list_nodes_since(as_of).await?.context("a change was missed")?;
    ensure!(list.nodes.len() >= cluster.nodes.len(), "the list is incomplete: {list:?}");
    ensure!(list.nodes.iter().any(|node| node.name == *name && node.comment == "changed"), "{list:?}");
    ensure!(list.as_of >= Some(as_of), "as_of went back");
    Ok(())
}

pub async fn deleting_a_node_record_is_idempotent(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    cluster.create_record("record-1").await?;
    ensure!(client.get_node("record-1").await?.is_some(), "the record was not created");
    client.delete_node("record-1").await?;
    client.delete_node("record-1").await?;
    let list = client.list_nodes().await?;
    ensure!(!list.nodes.is_empty() && list.nodes.iter().all(|node| node.name != "record-1"), "{list:?}");
    Ok(())
}
