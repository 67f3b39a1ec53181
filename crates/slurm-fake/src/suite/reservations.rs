//! Reservations, before and after they begin.

use super::TestCluster;
use super::test_cluster::eventually;
use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use slurm_rest::{Error, NodeState, Reservation, ReservationRequest, SlurmClient, errno};

const NAME: &str = "SlurmOperatorMaint-suite";

fn request(start: Timestamp, flags: &[&str], nodes: &[String]) -> ReservationRequest {
    ReservationRequest {
        name: NAME.to_owned(),
        start,
        minutes: 10,
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        users: vec!["slurm".to_owned()],
        nodes: nodes.to_vec(),
    }
}

async fn get(client: &SlurmClient) -> Result<Reservation> {
    client.list_reservations().await?.get(&NAME.to_lowercase()).cloned().context("no reservation")
}

pub async fn one_is_made_changed_and_deleted(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let start = cluster.now() + SignedDuration::from_hours(1);
    client.put_reservation(&request(start, &["MAINT", "IGNORE_JOBS"], &cluster.nodes)).await?;
    let made = get(&client).await?;
    let seconds = |time: Option<Timestamp>| time.map(Timestamp::as_second);
    ensure!(made.node_names()? == cluster.nodes && made.users == "slurm", "{made:?}");
    ensure!(seconds(made.start_time) == Some(start.as_second()), "{made:?}");
    ensure!(seconds(made.end_time) == Some(start.as_second() + 600), "{made:?}");
    for flag in ["MAINT", "IGNORE_JOBS", "SPEC_NODES"] {
        ensure!(made.flags.iter().any(|known| known == flag), "{flag} is missing: {made:?}");
    }
    ensure!(!made.is_active(cluster.now()), "{made:?}");

    client.set_reservation_nodes(NAME, &cluster.nodes[..1]).await?;
    let changed = get(&client).await?;
    ensure!(changed == Reservation { node_list: cluster.nodes[0].clone(), ..made.clone() }, "{changed:?}");
    let later = start + SignedDuration::from_hours(1);
    client.put_reservation(&request(later, &["MAINT", "IGNORE_JOBS"], &cluster.nodes)).await?;
    let moved = get(&client).await?;
    ensure!(
        seconds(moved.start_time) == Some(later.as_second()) && moved.node_list == made.node_list,
        "{moved:?}"
    );

    let unchanged = client.list_reservations_since(cluster.now() + SignedDuration::from_secs(5)).await?;
    ensure!(unchanged.is_none(), "{unchanged:?}");
    client.delete_reservation(NAME).await?;
    client.delete_reservation(NAME).await?;
    ensure!(client.list_reservations().await?.get(NAME).is_none(), "the reservation stays");
    Ok(())
}

pub async fn an_active_one_changes_its_nodes_only(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [first, second] = &cluster.nodes;
    let start = cluster.now() - SignedDuration::from_mins(1);
    let flags = ["MAINT", "IGNORE_JOBS", "FORCE_START", "DAILY"];
    let request = request(start, &flags, &cluster.nodes[..1]);
    client.put_reservation(&request).await?;
    ensure!(get(&client).await?.is_active(cluster.now()), "not active");
    let held = |node: &slurm_rest::Node| node.is(&NodeState::Maintenance) && node.reservation == NAME;
    eventually("the first node is held", || cluster.listed(first), held).await?;

    let refused = client.put_reservation(&request).await;
    let expected = errno::RESERVATION_STARTED;
    ensure!(refused.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{refused:?}");
    client.set_reservation_nodes(NAME, &cluster.nodes).await?;
    eventually("the second node is held", || cluster.listed(second), held).await?;
    let delete = client.delete_node(first).await;
    ensure!(delete.as_ref().is_err_and(|error| error.is_rejected_with(errno::NODES_BUSY)), "{delete:?}");

    client.delete_reservation(NAME).await?;
    let free = |node: &slurm_rest::Node| !node.is(&NodeState::Maintenance) && node.reservation.is_empty();
    eventually("the node is free", || cluster.listed(first), free).await?;
    Ok(())
}

pub async fn one_needs_known_nodes(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let start = cluster.now() + SignedDuration::from_hours(1);
    let empty = client.put_reservation(&request(start, &["MAINT"], &[])).await;
    ensure!(matches!(empty, Err(Error::Invalid(_))), "{empty:?}");
    let unknown = client.put_reservation(&request(start, &["MAINT"], &["nobody-knows".to_owned()])).await;
    let expected = errno::INVALID_NODE_NAME;
    ensure!(unknown.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{unknown:?}");
    let absent = client.set_reservation_nodes(NAME, &cluster.nodes).await;
    let expected = errno::INVALID_RESERVATION;
    ensure!(absent.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{absent:?}");
    Ok(())
}
