//! Deletes pods, each right after a read of Slurm that shows that no job runs on it.

use super::grant::{ApiRequestError, Batch, RequestError};
use super::report::{Report, WriteKind};
use super::writes::{CONCURRENT_WRITES, concurrently};
use crate::events::{Subject, Topic};
use crate::plan::{DeleteReason, Effect, Evidence, PodDeletion, may_be_at, registered_at};
use crate::slurm::{ClusterKey, NodeLookup, Queries, View};
use crate::timing::EVIDENCE_AGE;
use crate::worker::{Cordon, PodRef, Worker};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

/// How often a delete is retried after a conflict.
const CONFLICT_RETRIES: usize = 3;

/// What a delete came to.
enum DeleteOutcome {
    /// The pod is terminating, or deleted.
    Deleted,
    /// Slurm does not show the evidence.
    Unproven(String),
    /// The pod has changed, so that the plan does not apply to it.
    Changed,
    /// The delete failed.
    Failed(ApiRequestError),
}

/// A delete whose effect is unknown.
pub(super) struct Unsettled<'e> {
    deletion: &'e PodDeletion,
    /// The version of its precondition.
    pod: PodRef,
    error: ApiRequestError,
}

/// Deletes the pods of a plan; returns the deletes whose effect is unknown. `without_claims` are the UIDs of pods whose claims
/// do not have their owners yet.
pub(super) async fn delete_pods<'e>(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    effects: &'e [Effect],
    without_claims: &BTreeSet<&str>,
    report: &mut Report,
) -> Vec<Unsettled<'e>> {
    let deletes = effects.iter().filter_map(|effect| {
        let Effect::DeletePod(deletion) = effect else { return None };
        if without_claims.contains(deletion.pod.uid.as_str()) {
            report.requeue_soon();
            return None;
        }
        Some(async move { (deletion, delete(batch, reads, deletion).await) }.boxed())
    });
    let mut unsettled = vec![];
    for (deletion, outcome) in concurrently(CONCURRENT_WRITES, deletes).await {
        match outcome {
            Ok(outcome) => report_outcome(batch, deletion, outcome, report),
            Err(unanswered) => unsettled.push(unanswered),
        }
    }
    unsettled
}

/// Repeats the deletes whose effect is unknown, each time on new evidence.
pub(super) async fn settle_deletes(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    unsettled: Vec<Unsettled<'_>>,
    report: &mut Report,
) {
    let copies = unsettled.into_iter().map(|Unsettled { deletion, pod, error }| {
        async move {
            let copy = || async {
                // Without evidence the delete is not repeated, and its effect stays unknown.
                reads.prove(&deletion.evidence, None).await.map_err(|_| RequestError::OutOfTime)?;
                batch.attempt(batch.delete_pod(&pod)).await
            };
            let outcome = match batch.settle(copy).await {
                Some(Ok(())) => DeleteOutcome::Deleted,
                // The pod changed, by one of the copies or by another client.
                Some(Err(_)) => delete(batch, reads, deletion).await.unwrap_or_else(Unsettled::give_up),
                None => DeleteOutcome::Failed(error),
            };
            (deletion, outcome)
        }
        .boxed()
    });
    for (deletion, outcome) in concurrently(CONCURRENT_WRITES, copies).await {
        report_outcome(batch, deletion, outcome, report);
    }
}

impl Unsettled<'_> {
    fn give_up(self) -> DeleteOutcome {
        DeleteOutcome::Failed(self.error)
    }
}

async fn delete<'e>(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    deletion: &'e PodDeletion,
) -> Result<DeleteOutcome, Unsettled<'e>> {
    let mut pod = deletion.pod.clone();
    // A node list that started before the pod was read is no evidence for the version that was read.
    let mut read = None;
    for _ in 0..=CONFLICT_RETRIES {
        if let Err(doubt) = reads.prove(&deletion.evidence, read).await {
            return Ok(DeleteOutcome::Unproven(doubt));
        }
        match batch.write(batch.delete_pod(&pod)).await {
            Ok(()) => return Ok(DeleteOutcome::Deleted),
            Err(error) if error.is_conflict() => {}
            Err(error) if error.is_final() => return Ok(DeleteOutcome::Failed(error)),
            Err(error) => return Err(Unsettled { deletion, pod, error }),
        }
        let live = match batch.attempt(batch.api::<Pod>().get_opt(&pod.name)).await {
            Ok(live) => live.map(|live| Worker::new(Arc::new(live))),
            Err(error) => return Ok(DeleteOutcome::Failed(error)),
        };
        match live.filter(|live| live.uid() == pod.uid && !live.terminating) {
            Some(live) if is_still_planned(&live, deletion) => pod = live.reference(),
            Some(_) => return Ok(DeleteOutcome::Changed),
            None => {
                batch.results().deleted(&pod.uid);
                return Ok(DeleteOutcome::Deleted);
            }
        }
        read = Some(reads.turn());
    }
    Ok(DeleteOutcome::Changed)
}

/// Whether a pod that has changed is to be deleted nevertheless, as far as the pod itself shows. One that is replaced may have
/// become ready: the next plan decides whether enough others are available.
fn is_still_planned(live: &Worker, deletion: &PodDeletion) -> bool {
    if matches!(deletion.why, DeleteReason::Outdated | DeleteReason::Unregistered) {
        return false;
    }
    match &deletion.evidence {
        Evidence::Drained { .. } => matches!(live.cordon, Cordon::Ours(_)),
        Evidence::NotNeeded => live.is_finished() || live.node.is_none(),
        Evidence::NoRestApi | Evidence::Absent { .. } => true,
    }
}

fn report_outcome(batch: &Batch<'_>, deletion: &PodDeletion, outcome: DeleteOutcome, report: &mut Report) {
    let PodRef { name, uid, .. } = &deletion.pod;
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        namespace: Some(batch.namespace()),
        uid: Some(uid.clone()),
        ..ObjectMeta::default()
    };
    let subject = |detail| Subject::of::<Pod>(&metadata, detail);
    match outcome {
        DeleteOutcome::Deleted => {
            info!(batch = %batch.id, pod = name, why = ?deletion.why, "Pod deleted");
            report.record(WriteKind::PodDeleted);
            if matches!(deletion.why, DeleteReason::Failed | DeleteReason::Succeeded) {
                report.deleted_failed_pods.push(name.clone());
            }
            if deletion.why == DeleteReason::Unregistered {
                report.deleted_unregistered_pods.push(name.clone());
                report.events.add(Topic::PodUnregistered, subject(String::new()));
            }
            report.events.add(Topic::PodDeleted, subject(String::new()));
        }
        DeleteOutcome::Unproven(doubt) => {
            info!(batch = %batch.id, pod = name, doubt, "Pod not deleted: Slurm does not show the evidence");
            report.requeue_soon();
        }
        DeleteOutcome::Changed => {
            debug!(batch = %batch.id, pod = name, "Pod not deleted: it has changed");
            report.requeue_soon();
        }
        DeleteOutcome::Failed(error) => {
            if let Some(error) = report.record_failure(format!("Pod {name}"), &error) {
                report.events.add(Topic::PodNotDeleted, subject(error));
            }
        }
    }
}

/// Node lists of the Slurm cluster, made in this batch and shared by its deletes.
pub(super) struct NodeReads<'a> {
    batch: &'a Batch<'a>,
    /// Orders events; a clock may show the same time for two of them.
    turn: AtomicU64,
    latest: Mutex<Option<NodeRead>>,
}

struct NodeRead {
    began: u64,
    answered: Instant,
    view: View,
}

impl<'a> NodeReads<'a> {
    /// No node list yet.
    pub fn new(batch: &'a Batch<'a>) -> Self {
        Self { batch, turn: AtomicU64::default(), latest: Mutex::default() }
    }

    /// The current position in the order of events.
    fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// A node list that starts with this call.
    pub async fn list_now(&self) -> View {
        match self.list().await {
            Ok(read) => self.latest.lock().await.insert(read).view.clone(),
            Err(why) => View::unreachable(why),
        }
    }

    /// Checks the evidence in a node list that started after `after`; the error says what contradicts it.
    async fn prove(&self, evidence: &Evidence, after: Option<u64>) -> Result<(), String> {
        let node = match evidence {
            Evidence::NotNeeded => return Ok(()),
            Evidence::NoRestApi => return self.prove_no_slurm(),
            Evidence::Absent { node, .. } | Evidence::Drained { node, .. } => node,
        };
        let view = self.known(after).await?;
        match (view.lookup(node), evidence) {
            (NodeLookup::Absent, Evidence::Absent { addresses, .. }) => {
                prove_no_other_name(&view, addresses)?;
                self.prove_absent(node).await
            }
            (NodeLookup::Present(found), Evidence::Drained { addresses, .. }) if found.is_drained() => {
                if may_be_at(found, addresses) {
                    Ok(())
                } else {
                    prove_no_other_name(&view, addresses)
                }
            }
            (lookup, _) => Err(format!("Slurm shows {node} as {lookup:?}")),
        }
    }

    /// A recent node list that started after `after`; the error says why there is none.
    pub async fn known(&self, after: Option<u64>) -> Result<View, String> {
        let mut latest = self.latest.lock().await;
        let is_recent = |read: &NodeRead| {
            read.answered.elapsed() <= EVIDENCE_AGE && after.is_none_or(|after| read.began > after)
        };
        let read = match latest.take().filter(is_recent) {
            Some(read) => read,
            None => self.list().await?,
        };
        match &latest.insert(read).view {
            View::NoRestApi => Err("the Controller has no RestApi any more".to_owned()),
            View::Unknown { why, .. } => Err(why.clone()),
            view @ View::Known(_) => Ok(view.clone()),
        }
    }

    /// A node list may be truncated without a sign of it, so the node itself is read too.
    async fn prove_absent(&self, node: &str) -> Result<(), String> {
        let cluster = self.batch.cluster.as_ref().ok_or("the Controller does not exist")?;
        match self.batch.attempt(cluster.get_node(node)).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(format!("Slurm has {node}, although its node list lacks it")),
            Err(error) => Err(error.message()),
        }
    }

    fn prove_no_slurm(&self) -> Result<(), String> {
        let key = ClusterKey::of(self.batch.nodeset);
        match self.batch.executor.clusters.view(&key, Queries::default()) {
            View::NoRestApi => Ok(()),
            View::Unknown { .. } | View::Known(_) => Err("the Controller has a RestApi now".to_owned()),
        }
    }

    async fn list(&self) -> Result<NodeRead, String> {
        let cluster = self.batch.cluster.as_ref().ok_or("the Controller does not exist")?;
        let began = self.turn();
        let list = async { Ok::<_, slurm_rest::Error>(cluster.list_nodes_live().await) };
        let view = match self.batch.attempt(list).await {
            Ok(view) => view,
            Err(error) => View::unreachable(error.message()),
        };
        Ok(NodeRead { began, answered: Instant::now(), view })
    }
}

/// The error says which node a slurmd at one of these addresses has registered as.
fn prove_no_other_name(view: &View, addresses: &[String]) -> Result<(), String> {
    match registered_at(view, addresses)? {
        Some(other) => Err(format!("the slurmd of the pod is registered as {}", other.name)),
        None => Ok(()),
    }
}
