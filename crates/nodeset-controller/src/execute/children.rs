//! Applies the child objects that follow from the spec: the Service and PodDisruptionBudget that workers share, the sshd
//! configuration, and the revisions. They are no effects: server-side apply makes them idempotent, so they need no batch.

use crate::observe::Observed;
use crate::plan::{Children, MetadataChange, Plan, RevisionStep};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use operator_runtime::{ChildWriter, Scope, StepErrors};
use serde_json::{Value, json};
use slinky_api::labels::{REVISION_HASH, selector_labels};
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::NodeSet;
use std::convert::Infallible;
use std::sync::Arc;

/// Patches finalizers and annotations of the NodeSet, in the observed version only.
async fn patch_metadata(
    nodeset: &NodeSet,
    change: &MetadataChange,
    scope: &Scope,
) -> Result<(), kube::Error> {
    let api: Api<NodeSet> = Api::namespaced(scope.client(), &nodeset.namespace().unwrap_or_default());
    let mut metadata = json!({
        "uid": nodeset.uid(),
        "resourceVersion": nodeset.resource_version(),
        "annotations": change.annotations,
    });
    if let Some(finalizers) = &change.finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    ignore_conflict(api.patch(&nodeset.name_any(), &PatchParams::default(), &patch).await)
}

/// Patches the metadata of the NodeSet, applies its children, and performs the revision steps.
pub async fn apply_children(
    plan: &Plan,
    children: Option<Children>,
    observed: &Observed,
    scope: &Scope,
) -> Result<(), StepErrors> {
    let nodeset = observed.nodeset.as_ref();
    let mut writer = ChildWriter::new(scope, nodeset);
    if let Some(change) = &plan.metadata {
        writer.record("Metadata", patch_metadata(nodeset, change, scope).await);
    }
    let Some(Children { service, pdb, ssh_config, revision }) = children else { return writer.finish() };
    if let Some(service) = service {
        writer.apply("ClusterWorkerService", service, observed.service.as_deref()).await;
    }
    if let Some(pdb) = pdb {
        writer.apply::<_, Infallible>("ClusterWorkerPDB", Ok(pdb), observed.pdb.as_deref()).await;
    }
    if let Some(config) = ssh_config {
        writer.apply::<_, Infallible>("SSHConfig", Ok(config), observed.ssh_config.as_deref()).await;
    }
    for step in &plan.revisions.steps {
        let done = Box::pin(apply_revision(&mut writer, step, revision.as_ref(), observed, scope)).await;
        writer.record("Revisions", done);
    }
    writer.finish()
}

/// Performs one revision step. Existing revisions are changed in the observed version only.
async fn apply_revision(
    writer: &mut ChildWriter<'_, NodeSet>,
    step: &RevisionStep,
    new: Option<&ControllerRevision>,
    observed: &Observed,
    scope: &Scope,
) -> Result<(), kube::Error> {
    let nodeset = observed.nodeset.as_ref();
    let named = |name: &str| observed.revisions.iter().find(|revision| revision.name_any() == name);
    match step {
        RevisionStep::Create { .. } => {
            if let Some(revision) = new {
                // Without an Event: users follow workers.
                let created = scope.applier().create(revision).await;
                writer.record("Revisions", created);
            }
        }
        RevisionStep::Delete(name) => {
            if let Some(revision) = named(name) {
                let deleted = scope.applier().delete_if_owned(revision.as_ref(), nodeset).await;
                writer.record("Revisions", deleted);
            }
        }
        RevisionStep::Adopt(name) => {
            let owners = named(name).map(|revision| revision.owner_references().to_vec()).unwrap_or_default();
            let owners: Vec<_> = owners.into_iter().chain(controller_reference(nodeset)).collect();
            return patch_revision(named(name), json!({ "metadata": { "ownerReferences": owners } }), scope)
                .await;
        }
        RevisionStep::Label { name, hash } => {
            let mut labels = json!(selector_labels(nodeset));
            labels[REVISION_HASH] = json!(hash);
            return patch_revision(named(name), json!({ "metadata": { "labels": labels } }), scope).await;
        }
        RevisionStep::Renumber { name, number } => {
            return patch_revision(named(name), json!({ "revision": number }), scope).await;
        }
    }
    Ok(())
}

async fn patch_revision(
    revision: Option<&Arc<ControllerRevision>>,
    mut patch: Value,
    scope: &Scope,
) -> Result<(), kube::Error> {
    let Some(revision) = revision else { return Ok(()) };
    patch["metadata"]["uid"] = json!(revision.uid());
    patch["metadata"]["resourceVersion"] = json!(revision.resource_version());
    let api: Api<ControllerRevision> =
        Api::namespaced(scope.client(), &revision.namespace().unwrap_or_default());
    ignore_conflict(api.patch(&revision.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)
}

/// A conflict is no failure: the write that won brings the next reconcile.
fn ignore_conflict<K>(written: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}
