//! Writes to Slurm. None is repeated: Slurm has no conditional writes, and a copy that seemed lost may be applied late.

use super::delete::NodeReads;
use super::grant::{Batch, RequestError, SlurmRequestError};
use super::report::{Report, WriteKind};
use super::writes::concurrently;
use crate::events::{Subject, Topic};
use crate::plan::{Effect, unresponsive_record_of};
use crate::slurm::{CONCURRENT_SLURM_WRITES, NodeLookup};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use slurm_conf::hostlist::fold_set;
use slurm_rest::{Error, NodeUpdate, errno};
use tracing::info;

/// How many nodes share a request.
const NODES_PER_REQUEST: usize = 100;

/// What an update of several nodes came to.
#[derive(Default)]
struct Updated<'n> {
    /// Updated nodes.
    nodes: Vec<&'n str>,
    /// The others by hostlist, except nodes that do not exist: the next node list shows that.
    failed: Vec<(String, SlurmRequestError)>,
}

/// Updates nodes, many of them with the same update; returns the updated ones.
pub(super) async fn update_nodes<'n>(
    batch: &Batch<'_>,
    updates: &[(NodeUpdate, Vec<&'n str>)],
    report: &mut Report,
) -> Vec<&'n str> {
    let groups = updates.iter().flat_map(|(update, nodes)| {
        nodes.chunks(NODES_PER_REQUEST).map(move |group| update_group(batch, update, group).boxed())
    });
    let mut done = vec![];
    for group in concurrently(CONCURRENT_SLURM_WRITES, groups).await {
        done.extend(group.nodes);
        for (hostlist, error) in group.failed {
            report.record_failure(format!("Slurm node {hostlist}"), &error);
        }
    }
    done
}

async fn update_group<'n>(batch: &Batch<'_>, update: &NodeUpdate, group: &[&'n str]) -> Updated<'n> {
    let mut updated = Updated::default();
    match update_at_once(batch, update, group).await {
        Ok(()) => updated.nodes.extend(group),
        // slurmctld stops at the first unknown node and does not name it.
        Err(RequestError::Refused(Error::Rejected { .. })) if group.len() > 1 => {
            for node in group {
                match update_at_once(batch, update, &[node]).await {
                    Ok(()) => updated.nodes.push(node),
                    Err(error) => updated.fail(&[node], error),
                }
            }
        }
        Err(error) => updated.fail(group, error),
    }
    updated
}

async fn update_at_once(
    batch: &Batch<'_>,
    update: &NodeUpdate,
    nodes: &[&str],
) -> Result<(), SlurmRequestError> {
    match batch.slurm(|cluster| cluster.update_nodes(nodes, update)).await {
        // The node is resumed already, perhaps by the request that it shared with others.
        Err(RequestError::Refused(error))
            if *update == NodeUpdate::Resume
                && nodes.len() == 1
                && error.is_rejected_with(errno::INVALID_NODE_TRANSITION) =>
        {
            Ok(())
        }
        result => result,
    }
}

impl<'n> Updated<'n> {
    fn fail(&mut self, nodes: &[&'n str], error: SlurmRequestError) {
        if !matches!(error, RequestError::Refused(Error::NotFound(_))) {
            self.failed.push((fold_set(nodes.iter().copied()), error));
        }
    }
}

/// Proves that a node record belongs to this pod, that the pod does not exist and that no slurmd responds; the error says
/// what contradicts it.
async fn prove_abandoned(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    node: &str,
    pod: &str,
    host: &str,
) -> Result<(), String> {
    match batch.attempt(batch.api::<Pod>().get_metadata_opt(pod)).await {
        Ok(None) => {}
        Ok(Some(_)) => return Err(format!("Pod {pod} exists")),
        Err(error) => return Err(error.message()),
    }
    let view = reads.known(None).await?;
    let lookup = view.lookup(node);
    let NodeLookup::Present(record) = lookup else {
        return Err(format!("Slurm shows {node} as {lookup:?}"));
    };
    match unresponsive_record_of(batch.nodeset, record) {
        Some(info) if info.pod_name == pod && info.node == host => Ok(()),
        _ => Err(format!("{node} responds again, or belongs to another worker")),
    }
}

/// Creates, changes and deletes reservations; returns whether all writes succeeded.
pub(super) async fn write_reservations(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) -> bool {
    let mut done = true;
    for effect in effects {
        let (name, result) = if let Effect::PutReservation(request) = effect {
            (&request.name, batch.slurm(|cluster| cluster.put_reservation(request)).await)
        } else if let Effect::SetReservationNodes { name, nodes } = effect {
            (name, batch.slurm(|cluster| cluster.set_reservation_nodes(name, nodes)).await)
        } else if let Effect::DeleteReservation(name) = effect {
            (name, batch.slurm(|cluster| cluster.delete_reservation(name)).await)
        } else {
            continue;
        };
        match result {
            Ok(()) => {
                info!(batch = %batch.id, reservation = name, "Reservation written");
                report.record(WriteKind::ReservationWritten);
            }
            Err(error) => {
                done = false;
                drop(report.record_failure(format!("Slurm reservation {name}"), &error));
            }
        }
    }
    done
}

/// Deletes the records of Slurm nodes without a pod.
pub(super) async fn delete_node_records(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    effects: &[Effect],
    report: &mut Report,
) {
    let deletes = effects.iter().filter_map(|effect| {
        let Effect::DeleteNodeRecord { node, pod, host } = effect else { return None };
        let forget = async move {
            let result = match prove_abandoned(batch, reads, node, pod, host).await {
                Ok(()) => Ok(batch.slurm(|cluster| cluster.delete_node(node)).await),
                Err(doubt) => Err(doubt),
            };
            (node, pod, host, result)
        };
        Some(forget.boxed())
    });
    for (node, pod, host, result) in concurrently(CONCURRENT_SLURM_WRITES, deletes).await {
        let result = match result {
            Ok(result) => result,
            Err(doubt) => {
                info!(batch = %batch.id, node, pod, doubt, "Record of Slurm node not deleted");
                report.wait_for(format!("the record of Slurm node {node} stays: {doubt}"));
                continue;
            }
        };
        match result {
            Ok(()) => {
                info!(batch = %batch.id, node, pod, "Record of Slurm node deleted");
                report.record(WriteKind::NodeRecordDeleted);
                let detail = format!(
                    "backing Pod {}/{pod} is gone and Kubernetes node {host} no longer maps to its Slurm node",
                    batch.namespace()
                );
                report
                    .events
                    .add(Topic::NodeRecordDeleted, Subject { name: node.clone(), detail, reference: None });
            }
            Err(error) => drop(report.record_failure(format!("Slurm node {node}"), &error)),
        }
    }
}
