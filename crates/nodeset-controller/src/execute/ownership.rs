//! Who belongs to whom: what keeps the NodeSet, which pods are its own, and who takes claims along.

use super::grant::Batch;
use super::report::{Deed, Report};
use super::writes::{PARALLEL, exactly, side_by_side};
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

/// Takes from the NodeSet what keeps it.
pub(super) async fn release(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) {
    let (name, uid) = (batch.nodeset.name_any(), batch.nodeset.uid().unwrap_or_default());
    let version = batch.nodeset.resource_version().unwrap_or_default();
    for effect in effects {
        let Effect::SetFinalizers { finalizers } = effect else { continue };
        let patch = Patch::Merge(exactly(&uid, &version, json!({ "finalizers": finalizers })));
        match batch.patch::<NodeSet>(&name, patch).await {
            Ok(_) => {
                info!(batch = %batch.id, ?finalizers, "Set the finalizers of the NodeSet");
                report.did(Deed::Finalized);
            }
            Err(fault) => report.lose(format!("NodeSet {name}"), &fault),
        }
    }
}

/// Adopts pods and gives up others.
pub(super) async fn claim_pods(batch: &Batch<'_>, effects: &[Effect], report: &mut Report) {
    let adopts = effects.iter().any(|effect| matches!(effect, Effect::AdoptPod(_)));
    let may_adopt = adopts && may_adopt(batch, report).await;
    let Some(owner) = controller_reference(batch.nodeset) else { return };
    let patches = effects.iter().filter_map(|effect| {
        let (pod, deed, owners) = if let Effect::AdoptPod(pod) = effect {
            (pod, Deed::Adopted, may_adopt.then(|| json!([owner]))?)
        } else if let Effect::ReleasePod(pod) = effect {
            (pod, Deed::Disowned, json!([{ "$patch": "delete", "uid": owner.uid }]))
        } else {
            return None;
        };
        let patch = exactly(&pod.uid, &pod.version, json!({ "ownerReferences": owners }));
        Some(async move { (pod, deed, batch.patch_pod(pod, Patch::Strategic(patch)).await) }.boxed())
    });
    let patches: Vec<_> = patches.collect();
    for (pod, deed, result) in side_by_side(PARALLEL, patches).await {
        match result {
            Ok(_) => {
                info!(batch = %batch.id, pod = pod.name, ?deed, "Changed the controller of a pod");
                report.did(deed);
            }
            Err(fault) => report.lose(format!("Pod {}", pod.name), &fault),
        }
    }
}

/// Whether the NodeSet is there and stays: what it adopts would go with it.
async fn may_adopt(batch: &Batch<'_>, report: &mut Report) -> bool {
    let (nodesets, name) = (batch.api::<NodeSet>(), batch.nodeset.name_any());
    match batch.attempt(nodesets.get_metadata(&name)).await {
        Ok(live) => live.uid() == batch.nodeset.uid() && live.metadata.deletion_timestamp.is_none(),
        Err(fault) => {
            report.lose(format!("NodeSet {name}"), &fault);
            false
        }
    }
}

/// Gives claims their owners. Gives the UIDs of those who do not have theirs yet.
pub(super) async fn own_claims<'e>(
    batch: &Batch<'_>,
    effects: &'e [Effect],
    report: &mut Report,
) -> BTreeSet<&'e str> {
    let patches = effects.iter().filter_map(|effect| {
        let Effect::SetClaimOwners { claim, uid, version, owners } = effect else { return None };
        let patch = Patch::Merge(exactly(uid, version, json!({ "ownerReferences": owners })));
        Some(async move { (claim, owners, batch.patch::<PersistentVolumeClaim>(claim, patch).await) }.boxed())
    });
    let patches: Vec<_> = patches.collect();
    let mut without = BTreeSet::new();
    for (claim, owners, result) in side_by_side(PARALLEL, patches).await {
        match result {
            Ok(_) => {
                info!(batch = %batch.id, claim, "Changed the owners of a claim");
                report.did(Deed::Owned);
            }
            Err(fault) => {
                if !fault.is_gone() {
                    without.extend(owners.iter().map(|owner| owner.uid.as_str()));
                }
                report.lose(format!("PersistentVolumeClaim {claim}"), &fault);
            }
        }
    }
    without
}
