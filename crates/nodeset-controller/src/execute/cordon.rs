//! Takes workers out of service and puts them back. A pod is marked before its Slurm node is drained, and the mark is off
//! before the node is put back to work: nobody deletes a pod without a mark, so none goes whose node may get jobs.

use super::delete::Looks;
use super::grant::{ApiFault, Batch};
use super::report::{Deed, Report};
use super::slurm_writes::update_nodes;
use super::writes::{PARALLEL, exactly, side_by_side};
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

/// Marks pods, and drains the Slurm nodes of those that have their mark.
pub(super) async fn retire(batch: &Batch<'_>, looks: &Looks<'_>, effects: &[Effect], report: &mut Report) {
    let mut drains = vec![];
    let marks = effects.iter().filter_map(|effect| {
        if let Effect::Drain(drain) = effect {
            drains.push(drain);
        }
        let Effect::Cordon { pod, cause, person, drain } = effect else { return None };
        let mark = Patch::Merge(mark(pod, *cause, *person));
        Some(async move { (pod, drain, batch.patch_pod(pod, mark).await) }.boxed())
    });
    let marks: Vec<_> = marks.collect();
    for (pod, drain, result) in side_by_side(PARALLEL, marks).await {
        match result {
            Ok(_) => {
                info!(batch = %batch.id, pod = pod.name, "Marked a pod");
                report.did(Deed::Marked);
                drains.extend(drain);
            }
            Err(fault) => report.lose(format!("Pod {}", pod.name), &fault),
        }
    }
    keep_allowed(&mut drains, looks, |now, drain| may_drain(now, drain), report).await;
    // Equal reasons share requests.
    let mut by_reason = BTreeMap::<&str, Vec<&str>>::new();
    for Drain { node, reason } in drains {
        by_reason.entry(reason).or_default().push(node);
    }
    let drained = |(reason, nodes): (&str, _)| (NodeUpdate::Drain { reason: reason.to_owned() }, nodes);
    let updates: Vec<_> = by_reason.into_iter().map(drained).collect();
    for node in update_nodes(batch, &updates, report).await {
        info!(batch = %batch.id, node, "Drained a Slurm node");
        report.did(Deed::Drained);
    }
}

/// Drops what somebody else forbade meanwhile. Slurm has no conditional writes: this is the last moment to see it.
async fn keep_allowed<T>(
    wanted: &mut Vec<T>,
    looks: &Looks<'_>,
    is_allowed: impl Fn(&View, &T) -> bool,
    report: &mut Report,
) {
    if wanted.is_empty() {
        return;
    }
    let (now, all) = (looks.now().await, wanted.len());
    wanted.retain(|one| is_allowed(&now, one));
    if wanted.len() < all {
        report.leave();
    }
}

/// Whether a drain overwrites nothing that somebody else said.
fn may_drain(now: &View, drain: &Drain) -> bool {
    match now.lookup(&drain.node) {
        NodeLookup::Present(node) => drain.reason.is_empty() || !is_foreign(node),
        NodeLookup::Absent | NodeLookup::Unknown => false,
    }
}

/// Takes marks off pods, and puts the Slurm nodes of those that have none back to work.
pub(super) async fn restore(batch: &Batch<'_>, looks: &Looks<'_>, effects: &[Effect], report: &mut Report) {
    let reads = effects.iter().filter_map(|effect| {
        let Effect::Uncordon { pod, unmark, person, undo } = effect else { return None };
        let mark = unmark.then(|| Patch::Merge(no_mark(pod, *person)));
        Some(async move { (pod, *unmark, undo, unmarked(batch, pod, mark).await) }.boxed())
    });
    let reads: Vec<_> = reads.collect();
    let mut undos = vec![];
    for (pod, unmark, undo, result) in side_by_side(PARALLEL, reads).await {
        match result {
            Ok(now) => {
                if unmark {
                    info!(batch = %batch.id, pod = pod.name, "Took the mark off a pod");
                    report.did(Deed::Unmarked);
                }
                undos.extend(undo.as_ref().filter(|_| may_work(pod, now)));
            }
            Err(fault) => report.lose(format!("Pod {}", pod.name), &fault),
        }
    }
    keep_allowed(&mut undos, looks, |now, undo| may_undo(now, undo), report).await;
    let (mut undrain, mut resume) = (vec![], vec![]);
    for undo in undos {
        match undo {
            Undo::Undrain(node) => undrain.push(node.as_str()),
            Undo::Resume(node) => resume.push(node.as_str()),
        }
    }
    let updates = [(NodeUpdate::Undrain, undrain), (NodeUpdate::Resume, resume)];
    for node in update_nodes(batch, &updates, report).await {
        info!(batch = %batch.id, node, "Put a Slurm node back to work");
        report.did(Deed::Restored);
    }
}

/// Whether nobody else keeps a node out of service.
fn may_undo(now: &View, undo: &Undo) -> bool {
    let (Undo::Undrain(node) | Undo::Resume(node)) = undo;
    match now.lookup(node) {
        NodeLookup::Present(node) => !is_foreign(node),
        NodeLookup::Absent | NodeLookup::Unknown => false,
    }
}

/// The pod as the API server has it, once a mark that is to go is off.
async fn unmarked(
    batch: &Batch<'_>,
    pod: &PodRef,
    mark: Option<Patch<Value>>,
) -> Result<ObjectMeta, ApiFault> {
    match mark {
        Some(patch) => batch.patch_pod(pod, patch).await,
        None => Ok(batch.attempt(batch.api::<Pod>().get_metadata(&pod.name)).await?.metadata),
    }
}

/// Whether the pod is the one that was meant, stays, and nobody cordoned it.
fn may_work(pod: &PodRef, now: ObjectMeta) -> bool {
    let is_same = now.uid.as_ref() == Some(&pod.uid);
    let worker = Worker::new(Arc::new(Pod { metadata: now, ..Pod::default() }));
    is_same && !worker.terminating && worker.cordon == Cordon::None
}

fn mark(pod: &PodRef, cause: Cause, person: bool) -> Value {
    let by = format!("{}{}", if person { PERSON_PREFIX } else { "" }, cause.as_str());
    exactly(&pod.uid, &pod.version, json!({ "annotations": { POD_CORDON: TRUE, POD_CORDON_BY: by } }))
}

fn no_mark(pod: &PodRef, person: bool) -> Value {
    let cordon = person.then_some(TRUE);
    exactly(
        &pod.uid,
        &pod.version,
        json!({ "annotations": { POD_CORDON: cordon, POD_CORDON_BY: Value::Null } }),
    )
}
