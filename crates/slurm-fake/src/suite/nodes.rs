//! Reading and changing nodes.

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

pub async fn an_unknown_node_is_not_shown_and_not_changed(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    ensure!(client.get_node("nobody-knows").await?.is_none(), "an unknown node is shown");
    ensure!(client.get_node(&cluster.nodes[0].to_uppercase()).await?.is_none(), "case does not matter");
    let update = client.update_nodes(&["nobody-knows"], &drain("why not")).await;
    ensure!(matches!(update, Err(Error::NotFound(_))), "{update:?}");
    client.delete_node("nobody-knows").await?;
    Ok(())
}

pub async fn a_drain_keeps_its_latest_reason(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let before = cluster.now();
    client.update_nodes(&[name], &drain("first")).await?;
    client.update_nodes(&[name], &drain("second, with \"quotes\"")).await?;
    client.update_nodes(&[name], &drain("")).await?;
    let node = client.get_node(name).await?.context("not shown")?;
    ensure!(node.is_drained() && node.reason == "second, with \"quotes\"", "{node:?}");
    ensure!(node.reason_set_by_user == "slurm", "{node:?}");
    let at = node.reason_changed_at.context("no time of the reason")?;
    ensure!((before.as_second()..=cluster.now().as_second()).contains(&at.as_second()), "{before} {at}");
    ensure!(is_clean(&cluster.listed(&cluster.nodes[1]).await?), "the other node was touched");
    Ok(())
}

pub async fn undrain_and_idle_undo_anybodys_drain(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    for update in [NodeUpdate::Undrain, NodeUpdate::Idle, NodeUpdate::Resume] {
        client.update_nodes(&[name], &drain("an administrator's")).await?;
        client.update_nodes(&[name], &update).await?;
        let node = cluster.listed(name).await?;
        ensure!(is_clean(&node), "{update:?} left {node:?}");
        // All but IDLE make slurmctld ask the slurmd anew.
        let waits = node.is(&NodeState::NotResponding);
        ensure!(waits == (update != NodeUpdate::Idle), "{update:?} left {node:?}");
        eventually("slurmd answers", || cluster.listed(name), |node| !node.is(&NodeState::NotResponding)).await?;
    }
    Ok(())
}

pub async fn resume_is_refused_on_a_node_at_work(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let refused = client.update_nodes(&[name], &NodeUpdate::Resume).await;
    let expected = errno::INVALID_NODE_TRANSITION;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{refused:?}");
    client.update_nodes(&[name], &NodeUpdate::Idle).await?;
    ensure!(is_clean(&cluster.listed(name).await?), "IDLE changed an idle node");
    Ok(())
}

pub async fn down_and_drain_are_independent(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    client.update_nodes(&[name], &NodeUpdate::Down { reason: "gone".to_owned() }).await?;
    let node = cluster.listed(name).await?;
    ensure!(node.is(&NodeState::Down) && !node.is_drained() && node.reason == "gone", "{node:?}");
    client.update_nodes(&[name], &drain("and drained")).await?;
    let node = cluster.listed(name).await?;
    ensure!(node.is(&NodeState::Down) && node.is_drained() && node.reason == "and drained", "{node:?}");
    client.update_nodes(&[name], &NodeUpdate::Undrain).await?;
    let node = cluster.listed(name).await?;
    ensure!(
        node.is(&NodeState::Down) && !node.is(&NodeState::Drain) && node.reason == "and drained",
        "{node:?}"
    );
    client.update_nodes(&[name], &NodeUpdate::Idle).await?;
    let node = cluster.listed(name).await?;
    ensure!(is_clean(&node), "{node:?}");
    Ok(())
}

pub async fn comments_are_kept_as_they_are(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let text = r#"{"namespace":"a b","podName":"c\\d","node":"ü / \" , = ["}"#;
    client.update_nodes(&[name], &NodeUpdate::Comment(text.to_owned())).await?;
    ensure!(cluster.listed(name).await?.comment == text, "{:?}", cluster.listed(name).await?.comment);
    client.update_nodes(&[name], &NodeUpdate::Comment(String::new())).await?;
    ensure!(cluster.listed(name).await?.comment.is_empty(), "the comment stays");
    Ok(())
}

pub async fn active_features_are_a_subset(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    let before = cluster.listed(name).await?;
    let features = |available: &[&str], active: &[&str]| NodeUpdate::Features {
        available: available.iter().map(|name| (*name).to_owned()).collect(),
        active: active.iter().map(|name| (*name).to_owned()).collect(),
    };
    client.update_nodes(&[name], &features(&["k8s/a", "mig=on"], &["k8s/a"])).await?;
    let node = cluster.listed(name).await?;
    ensure!(node.features == ["k8s/a", "mig=on"] && node.active_features == ["k8s/a"], "{node:?}");
    let refused = client.update_nodes(&[name], &features(&["a"], &["b"])).await;
    let expected = errno::INVALID_FEATURES;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{refused:?}");
    ensure!(cluster.listed(name).await?.features == node.features, "a refused change was made");
    client.update_nodes(&[name], &features(&[], &[])).await?;
    let node = cluster.listed(name).await?;
    ensure!(node.features.is_empty() && node.active_features.is_empty(), "{node:?}");
    let restore = NodeUpdate::Features { available: before.features, active: before.active_features };
    client.update_nodes(&[name], &restore).await?;
    Ok(())
}

pub async fn many_nodes_change_in_one_request(cluster: &TestCluster) -> Result<()> {
    let [first, second] = &cluster.nodes;
    cluster.client()?.update_nodes(&[second, first], &drain("together")).await?;
    for name in &cluster.nodes {
        let node = cluster.listed(name).await?;
        ensure!(node.is_drained() && node.reason == "together", "{node:?}");
    }
    Ok(())
}

/// slurmctld goes through the names in alphabetical order, passes by a node that may not change as wanted, and stops
/// at a name that it does not know.
pub async fn a_refused_request_changes_some_nodes_all_the_same(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [first, second] = &cluster.nodes;
    let refused = client.update_nodes(&[first, "zzz-unknown"], &drain("before")).await;
    let unknown = errno::INVALID_NODE_NAME;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(unknown)), "{refused:?}");
    ensure!(cluster.listed(first).await?.reason == "before", "the node before the unknown one was left out");
    let refused = client.update_nodes(&[first, "000-unknown"], &drain("after")).await;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(unknown)), "{refused:?}");
    ensure!(cluster.listed(first).await?.reason == "before", "the node after the unknown one was changed");

    client.update_nodes(&[first], &NodeUpdate::Idle).await?;
    client.update_nodes(&[second], &drain("to be resumed")).await?;
    let refused = client.update_nodes(&[first, second], &NodeUpdate::Resume).await;
    let transition = errno::INVALID_NODE_TRANSITION;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(transition)), "{refused:?}");
    ensure!(is_clean(&cluster.listed(second).await?), "the node after the refused one was left out");
    Ok(())
}

pub async fn lists_tell_whether_anything_changed(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [name, _] = &cluster.nodes;
    // A change of the same second is told again, and slurmds report their load now and then.
    let quiet = || async {
        let as_of = client.list_nodes().await?.as_of.context("a list without a time")?;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let quiet = client.list_nodes_since(as_of).await?.is_none();
        Ok((as_of, quiet))
    };
    let (as_of, _) = eventually("nothing changes", quiet, |(_, quiet)| *quiet).await?;
    client.update_nodes(&[name], &NodeUpdate::Comment("changed".to_owned())).await?;
    let list = client.list_nodes_since(as_of).await?.context("a change was missed")?;
    ensure!(list.nodes.len() >= cluster.nodes.len(), "only a part is listed: {list:?}");
    ensure!(list.nodes.iter().any(|node| node.name == *name && node.comment == "changed"), "{list:?}");
    ensure!(list.as_of >= Some(as_of), "time went back");
    Ok(())
}

pub async fn a_record_is_deleted_once_and_for_all(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    cluster.create_record("record-1").await?;
    ensure!(client.get_node("record-1").await?.is_some(), "no record");
    client.delete_node("record-1").await?;
    client.delete_node("record-1").await?;
    let list = client.list_nodes().await?;
    ensure!(!list.nodes.is_empty() && list.nodes.iter().all(|node| node.name != "record-1"), "{list:?}");
    Ok(())
}
