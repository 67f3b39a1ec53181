//! Ownership: finalizers of the NodeSet, controller references of pods, owner references of PersistentVolumeClaims.

use super::grant::Batch;
use super::report::{Report, WriteKind};
use super::writes::{CONCURRENT_WRITES, concurrently, with_preconditions};
use crate::plan::Effect;
use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeSet;
use tracing::info;

/// Sets the finalizers of the NodeSet.
pub(super) async fn set_finalizers(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) {
    let (name, uid) = (batch.nodeset.name_any(), batch.nodeset.uid().unwrap_or_default());
    let version = batch.nodeset.resource_version().unwrap_or_default();
    for effect in effects {
        let Effect::SetFinalizers { finalizers } = effect else { continue };
        let patch = Patch::Merge(with_preconditions(&uid, &version, json!({ "finalizers": finalizers })));
        match batch.patch::<NodeSet>(&name, patch).await {
            Ok(_) => {
                info!(batch = %batch.id, ?finalizers, "Finalizers of the NodeSet set");
                report.record(WriteKind::FinalizersSet);
            }
            Err(error) => report.record_conditional_failure(format!("NodeSet {name}"), &error),
        }
    }
}

/// Adopts and releases pods.
pub(super) async fn set_pod_controllers(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) {
    let adopts = effects.iter().any(|effect| matches!(effect, Effect::AdoptPod { .. }));
    let may_adopt = adopts && may_adopt(batch, report).await;
    let Some(owner) = controller_reference(batch.nodeset) else { return };
    let patches = effects.iter().filter_map(|effect| {
        let (pod, kind, owners) = if let Effect::AdoptPod { pod, owners } = effect {
            (pod, WriteKind::PodAdopted, may_adopt.then(|| json!(owners))?)
        } else if let Effect::ReleasePod(pod) = effect {
            (pod, WriteKind::PodReleased, json!([{ "$patch": "delete", "uid": owner.uid }]))
        } else {
            return None;
        };
        let patch = with_preconditions(&pod.uid, &pod.version, json!({ "ownerReferences": owners }));
        Some(async move { (pod, kind, batch.patch_pod(pod, Patch::Strategic(patch)).await) }.boxed())
    });
    for (pod, kind, result) in concurrently(CONCURRENT_WRITES, patches).await {
        match result {
            Ok(_) => {
                info!(batch = %batch.id, pod = pod.name, ?kind, "Owner references of pod changed");
                report.record(kind);
            }
            Err(error) => report.record_conditional_failure(format!("Pod {}", pod.name), &error),
        }
    }
}

/// Whether the NodeSet exists and is not being deleted: adopted pods would be garbage-collected with it.
async fn may_adopt(batch: &Batch<'_>, report: &mut Report) -> bool {
    let (nodesets, name) = (batch.api::<NodeSet>(), batch.nodeset.name_any());
    match batch.attempt(nodesets.get_metadata(&name)).await {
        Ok(live) => live.uid() == batch.nodeset.uid() && live.metadata.deletion_timestamp.is_none(),
        Err(error) => {
            report.record_conditional_failure(format!("NodeSet {name}"), &error);
            false
        }
    }
}

/// Sets the owners of claims. Returns the UIDs of the pods that use claims without their new owners: such a claim would be
/// deleted with its pod, or would stay.
pub(super) async fn set_claim_owners<'e>(
    batch: &Batch<'_>,
    effects: &'e [Effect],
    report: &mut Report,
) -> BTreeSet<&'e str> {
    let patches = effects.iter().filter_map(|effect| {
        let Effect::SetClaimOwners { claim, uid, version, owners, user } = effect else { return None };
        let patch = Patch::Merge(with_preconditions(uid, version, json!({ "ownerReferences": owners })));
        Some(async move { (claim, user, batch.patch::<PersistentVolumeClaim>(claim, patch).await) }.boxed())
    });
    let mut without = BTreeSet::new();
    for (claim, user, result) in concurrently(CONCURRENT_WRITES, patches).await {
        match result {
            Ok(_) => {
                info!(batch = %batch.id, claim, "Owners of PersistentVolumeClaim changed");
                report.record(WriteKind::ClaimOwnersSet);
            }
            Err(error) => {
                if !error.is_not_found() {
                    without.insert(user.as_str());
                }
                report.record_conditional_failure(format!("PersistentVolumeClaim {claim}"), &error);
            }
        }
    }
    without
}
