//! Cordons and uncordons workers. A pod is marked before its Slurm node is drained, and the mark is removed before the node
//! is resumed: only marked pods are deleted, so no pod is deleted whose node may get jobs.

use super::delete::NodeReads;
use super::grant::{ApiRequestError, Batch};
use super::report::{Report, WriteKind};
use super::slurm_writes::update_nodes;
use super::writes::{CONCURRENT_WRITES, concurrently, with_preconditions};
use crate::plan::{Drain, Effect, Undo, is_foreign};
use crate::slurm::{NodeLookup, View};
use crate::worker::{Cause, Cordon, PERSON_PREFIX, PodRef, Worker};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use serde_json::{Value, json};
use slinky_api::labels::TRUE;
use slinky_api::labels::annotations::{POD_CORDON, POD_CORDON_BY};
use slurm_rest::NodeUpdate;
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::info;

/// Marks pods, then drains the Slurm nodes of the pods that have their mark.
pub(super) async fn cordon_workers(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    effects: &[Effect],
    report: &mut Report,
) {
    let mut drains = vec![];
    let marks = effects.iter().filter_map(|effect| {
        if let Effect::Drain(drain) = effect {
            drains.push(drain);
        }
        let Effect::Cordon { pod, cause, person, drain } = effect else { return None };
        let mark = Patch::Merge(mark(pod, *cause, *person));
        Some(async move { (pod, drain, batch.patch_pod(pod, mark).await) }.boxed())
    });
    for (pod, drain, result) in concurrently(CONCURRENT_WRITES, marks).await {
        match result {
            Ok(_) => {
                info!(batch = %batch.id, pod = pod.name, "Pod marked");
                report.record(WriteKind::PodMarked);
                drains.extend(drain);
            }
            Err(error) => report.record_conditional_failure(format!("Pod {}", pod.name), &error),
        }
    }
    keep_allowed(&mut drains, reads, |now, drain| may_drain(now, drain), report).await;
    // Equal reasons share requests.
    let mut by_reason = BTreeMap::<&str, Vec<&str>>::new();
    for Drain { node, reason } in drains {
        by_reason.entry(reason).or_default().push(node);
    }
    let drained = |(reason, nodes): (&str, _)| (NodeUpdate::Drain { reason: reason.to_owned() }, nodes);
    let updates: Vec<_> = by_reason.into_iter().map(drained).collect();
    for node in update_nodes(batch, &updates, report).await {
        info!(batch = %batch.id, node, "Slurm node drained");
        report.record(WriteKind::NodeDrained);
    }
}

/// Drops the writes that a live read does not allow any more. Slurm has no conditional writes: this is the latest check.
async fn keep_allowed<T>(
    wanted: &mut Vec<T>,
    reads: &NodeReads<'_>,
    is_allowed: impl Fn(&View, &T) -> bool,
    report: &mut Report,
) {
    if wanted.is_empty() {
        return;
    }
    let (now, all) = (reads.list_now().await, wanted.len());
    wanted.retain(|one| is_allowed(&now, one));
    if wanted.len() < all {
        report.requeue_soon();
    }
}

/// Whether a drain overwrites no reason of another author.
fn may_drain(now: &View, drain: &Drain) -> bool {
    match now.lookup(&drain.node) {
        NodeLookup::Present(node) => drain.reason.is_empty() || !is_foreign(node),
        NodeLookup::Absent | NodeLookup::Unknown => false,
    }
}

/// Removes the marks of pods, then undrains or resumes the Slurm nodes of the pods that have none.
pub(super) async fn uncordon_workers(
    batch: &Batch<'_>,
    reads: &NodeReads<'_>,
    effects: &[Effect],
    report: &mut Report,
) {
    let unmarks = effects.iter().filter_map(|effect| {
        let Effect::Uncordon { pod, unmark, person, undo } = effect else { return None };
        let mark = unmark.then(|| Patch::Merge(mark_removal(pod, *person)));
        Some(async move { (pod, *unmark, undo, unmarked(batch, pod, mark).await) }.boxed())
    });
    let mut undos = vec![];
    for (pod, unmark, undo, result) in concurrently(CONCURRENT_WRITES, unmarks).await {
        match result {
            Ok(now) => {
                if unmark {
                    info!(batch = %batch.id, pod = pod.name, "Mark of pod removed");
                    report.record(WriteKind::PodUnmarked);
                }
                undos.extend(undo.as_ref().filter(|_| may_get_jobs(pod, now)));
            }
            Err(error) => report.record_conditional_failure(format!("Pod {}", pod.name), &error),
        }
    }
    keep_allowed(&mut undos, reads, |now, undo| may_undo(now, undo), report).await;
    let (mut undrain, mut resume) = (vec![], vec![]);
    for undo in undos {
        match undo {
            Undo::Undrain(node) => undrain.push(node.as_str()),
            Undo::Resume(node) => resume.push(node.as_str()),
        }
    }
    let updates = [(NodeUpdate::Undrain, undrain), (NodeUpdate::Resume, resume)];
    for node in update_nodes(batch, &updates, report).await {
        info!(batch = %batch.id, node, "Slurm node resumed");
        report.record(WriteKind::NodeResumed);
    }
}

/// Whether no other author keeps the node drained or down.
fn may_undo(now: &View, undo: &Undo) -> bool {
    let (Undo::Undrain(node) | Undo::Resume(node)) = undo;
    match now.lookup(node) {
        NodeLookup::Present(node) => !is_foreign(node),
        NodeLookup::Absent | NodeLookup::Unknown => false,
    }
}

/// The metadata of the pod after its mark, if it is to be removed, is removed.
async fn unmarked(
    batch: &Batch<'_>,
    pod: &PodRef,
    mark: Option<Patch<Value>>,
) -> Result<ObjectMeta, ApiRequestError> {
    match mark {
        Some(patch) => batch.patch_pod(pod, patch).await,
        None => Ok(batch.attempt(batch.api::<Pod>().get_metadata(&pod.name)).await?.metadata),
    }
}

/// Whether the pod has the planned UID, is not being deleted, and is not cordoned.
fn may_get_jobs(pod: &PodRef, now: ObjectMeta) -> bool {
    let is_same = now.uid.as_ref() == Some(&pod.uid);
    let worker = Worker::new(Arc::new(Pod { metadata: now, ..Pod::default() }));
    is_same && !worker.terminating && worker.cordon == Cordon::None
}

fn mark(pod: &PodRef, cause: Cause, person: bool) -> Value {
    let by = format!("{}{}", if person { PERSON_PREFIX } else { "" }, cause.as_str());
    with_preconditions(
        &pod.uid,
        &pod.version,
        json!({ "annotations": { POD_CORDON: TRUE, POD_CORDON_BY: by } }),
    )
}

fn mark_removal(pod: &PodRef, person: bool) -> Value {
    let cordon = person.then_some(TRUE);
    with_preconditions(
        &pod.uid,
        &pod.version,
        json!({ "annotations": { POD_CORDON: cordon, POD_CORDON_BY: Value::Null } }),
    )
}
