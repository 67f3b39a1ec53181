//! Writes to Slurm. None is sent twice: a copy that was thought lost may be carried out late, when the world has gone on.

use super::delete::Looks;
use super::grant::{Batch, Fault, SlurmFault};
use super::notices::{Subject, Topic};
use super::report::{Deed, Report};
use super::writes::side_by_side;
use crate::plan::{Effect, unresponsive_record_of};
use crate::slurm::NodeLookup;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use slurm_conf::hostlist::fold_set;
use slurm_rest::{Error, NodeUpdate, errno};
use tracing::info;

/// How many requests are under way at a time.
pub(super) const PARALLEL: usize = 8;
/// How many nodes share a request.
const TOGETHER: usize = 100;

/// What became of an update of several nodes.
#[derive(Default)]
struct Updated<'n> {
    /// Those that took it.
    nodes: Vec<&'n str>,
    /// The others by their hostlist, except those that are not there: the next look shows that.
    failed: Vec<(String, SlurmFault)>,
}

/// Tells nodes something, many of them the same; gives those that took it.
pub(super) async fn update_nodes<'n>(
    batch: &Batch<'_>,
    updates: &[(NodeUpdate, Vec<&'n str>)],
    report: &mut Report,
) -> Vec<&'n str> {
    let groups = updates.iter().flat_map(|(update, nodes)| {
        nodes.chunks(TOGETHER).map(move |group| update_group(batch, update, group).boxed())
    });
    let groups: Vec<_> = groups.collect();
    let mut told = vec![];
    for group in side_by_side(PARALLEL, groups).await {
        told.extend(group.nodes);
        for (hostlist, fault) in group.failed {
            report.fail(format!("Slurm node {hostlist}"), &fault);
        }
    }
    told
}

async fn update_group<'n>(batch: &Batch<'_>, update: &NodeUpdate, group: &[&'n str]) -> Updated<'n> {
    let mut updated = Updated::default();
    match update_at_once(batch, update, group).await {
        Ok(()) => updated.nodes.extend(group),
        // Slurm stopped at the first that it does not know, and does not say which one that is.
        Err(Fault::Refused(Error::Rejected { .. })) if group.len() > 1 => {
            for node in group {
                match update_at_once(batch, update, &[node]).await {
                    Ok(()) => updated.nodes.push(node),
                    Err(fault) => updated.fail(&[node], fault),
                }
            }
        }
        Err(fault) => updated.fail(group, fault),
    }
    updated
}

async fn update_at_once(batch: &Batch<'_>, update: &NodeUpdate, nodes: &[&str]) -> Result<(), SlurmFault> {
    match batch.slurm(|cluster| cluster.update_nodes(nodes, update)).await {
        // It is at work already, perhaps because of the request that it shared with others.
        Err(Fault::Refused(error))
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
    fn fail(&mut self, nodes: &[&'n str], fault: SlurmFault) {
        if !matches!(fault, Fault::Refused(Error::NotFound(_))) {
            self.failed.push((fold_set(nodes.iter().copied()), fault));
        }
    }
}

/// Shows that a record still says that it was this pod's, and that neither the pod nor a slurmd is there; else says what
/// stands against it.
async fn prove_abandoned(
    batch: &Batch<'_>,
    looks: &Looks<'_>,
    node: &str,
    pod: &str,
    host: &str,
) -> Result<(), String> {
    match batch.attempt(batch.api::<Pod>().get_metadata_opt(pod)).await {
        Ok(None) => {}
        Ok(Some(_)) => return Err(format!("Pod {pod} is there")),
        Err(fault) => return Err(fault.message()),
    }
    let view = looks.known(None).await?;
    let lookup = view.lookup(node);
    let NodeLookup::Present(record) = lookup else {
        return Err(format!("Slurm shows {node} otherwise: {lookup:?}"));
    };
    match unresponsive_record_of(batch.nodeset, record) {
        Some(info) if info.pod_name == pod && info.node == host => Ok(()),
        _ => Err(format!("{node} is not silent any more, or not ours")),
    }
}

/// Makes, changes and deletes reservations. Says whether all of that was done.
pub(super) async fn reserve(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) -> bool {
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
                info!(batch = %batch.id, reservation = name, "Changed a reservation");
                report.did(Deed::Reserved);
            }
            Err(fault) => {
                done = false;
                drop(report.fail(format!("Slurm reservation {name}"), &fault));
            }
        }
    }
    done
}

/// Deletes the records of Slurm nodes that no pod stands behind.
pub(super) async fn forget_nodes(
    batch: &Batch<'_>,
    looks: &Looks<'_>,
    effects: &[Effect],
    report: &mut Report,
) {
    let deletes = effects.iter().filter_map(|effect| {
        let Effect::DeleteNodeRecord { node, pod, host } = effect else { return None };
        let forget = async move {
            let result = match prove_abandoned(batch, looks, node, pod, host).await {
                Ok(()) => Ok(batch.slurm(|cluster| cluster.delete_node(node)).await),
                Err(doubt) => Err(doubt),
            };
            (node, pod, host, result)
        };
        Some(forget.boxed())
    });
    let deletes: Vec<_> = deletes.collect();
    for (node, pod, host, result) in side_by_side(PARALLEL, deletes).await {
        let result = match result {
            Ok(result) => result,
            Err(doubt) => {
                info!(batch = %batch.id, node, pod, doubt, "Did not delete the record of a Slurm node");
                report.wait(format!("the record of Slurm node {node} stays: {doubt}"));
                continue;
            }
        };
        match result {
            Ok(()) => {
                info!(batch = %batch.id, node, pod, "Deleted the record of a Slurm node");
                report.did(Deed::Forgotten);
                let detail = format!(
                    "backing Pod {}/{pod} is gone and Kubernetes node {host} no longer maps to its Slurm node",
                    batch.namespace()
                );
                report
                    .told
                    .tell(Topic::NodeForgotten, Subject { name: node.clone(), detail, reference: None });
            }
            Err(fault) => drop(report.fail(format!("Slurm node {node}"), &fault)),
        }
    }
}
