//! Reservations, before and after their start.

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
    client
        .list_reservations()
        .await?
        .get(&NAME.to_lowercase())
        .cloned()
        .context("the reservation is not listed")
}

pub async fn reservation_is_created_updated_and_deleted(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let start = cluster.now() + SignedDuration::from_hours(1);
    client.put_reservation(&request(start, &["MAINT", "IGNORE_JOBS"], &cluster.nodes)).await?;
    let created = get(&client).await?;
    let seconds = |time: Option<Timestamp>| time.map(Timestamp::as_second);
    ensure!(created.node_names()? == cluster.nodes && created.users == "slurm", "{created:?}");
    ensure!(seconds(created.start_time) == Some(start.as_second()), "{created:?}");
    ensure!(seconds(created.end_time) == Some(start.as_second() + 600), "{created:?}");
    for flag in ["MAINT", "IGNORE_JOBS", "SPEC_NODES"] {
        ensure!(created.flags.iter().any(|known| known == flag), "{flag} is missing: {created:?}");
    }
    ensure!(!created.is_active(cluster.now()), "{created:?}");

    client.set_reservation_nodes(NAME, &cluster.nodes[..1]).await?;
    let changed = get(&client).await?;
    ensure!(changed == Reservation { node_list: cluster.nodes[0].clone(), ..created.clone() }, "{changed:?}");
    let later = start + SignedDuration::from_hours(1);
    client.put_reservation(&request(later, &["MAINT", "IGNORE_JOBS"], &cluster.nodes)).await?;
    let moved = get(&client).await?;
    ensure!(
        seconds(moved.start_time) == Some(later.as_second()) && moved.node_list == created.node_list,
        "{moved:?}"
    );

    let unchanged = client.list_reservations_since(cluster.now() + SignedDuration::from_secs(5)).await?;
    ensure!(unchanged.is_none(), "{unchanged:?}");
    client.delete_reservation(NAME).await?;
    client.delete_reservation(NAME).await?;
    ensure!(client.list_reservations().await?.get(NAME).is_none(), "the reservation was not deleted");
    Ok(())
}

pub async fn only_the_nodes_of_an_active_reservation_can_change(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let [first, second] = &cluster.nodes;
    let start = cluster.now() - SignedDuration::from_mins(1);
    let flags = ["MAINT", "IGNORE_JOBS", "FORCE_START", "DAILY"];
    let request = request(start, &flags, &cluster.nodes[..1]);
    client.put_reservation(&request).await?;
    ensure!(get(&client).await?.is_active(cluster.now()), "the reservation is not active");
    let in_maintenance =
        |node: &slurm_rest::Node| node.is(&NodeState::Maintenance) && node.reservation == NAME;
    eventually("the first node is in maintenance", || cluster.get_listed(first), in_maintenance).await?;

    let rejected = client.put_reservation(&request).await;
    let expected = errno::RESERVATION_STARTED;
    ensure!(rejected.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{rejected:?}");
    client.set_reservation_nodes(NAME, &cluster.nodes).await?;
    eventually("the second node is in maintenance", || cluster.get_listed(second), in_maintenance).await?;
    let delete = client.delete_node(first).await;
    ensure!(delete.as_ref().is_err_and(|error| error.is_rejected_with(errno::NODES_BUSY)), "{delete:?}");

    client.delete_reservation(NAME).await?;
    let free = |node: &slurm_rest::Node| !node.is(&NodeState::Maintenance) && node.reservation.is_empty();
    eventually("the node is free", || cluster.get_listed(first), free).await?;
    Ok(())
}

pub async fn reservation_needs_existing_nodes(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client()?;
    let start = cluster.now() + SignedDuration::from_hours(1);
    let empty = client.put_reservation(&request(start, &["MAINT"], &[])).await;
    ensure!(matches!(empty, Err(Error::Invalid(_))), "{empty:?}");
    let unknown = client.put_reservation(&request(start, &["MAINT"], &["no-such-node".to_owned()])).await;
    let expected = errno::INVALID_NODE_NAME;
    ensure!(unknown.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{unknown:?}");
    let absent = client.set_reservation_nodes(NAME, &cluster.nodes).await;
    let expected = errno::INVALID_RESERVATION;
    ensure!(absent.as_ref().is_err_and(|error| error.is_rejected_with(expected)), "{absent:?}");
    Ok(())
}
