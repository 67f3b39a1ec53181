//! Applies the child objects that follow from the spec: the Service and PodDisruptionBudget that workers share, the sshd
//! configuration, and the revisions. They are no effects: server-side apply makes them idempotent, so they need no batch.

use crate::build::{
    build_revision, build_revision_data, build_ssh_config, build_worker_pdb, build_worker_service,
};
use crate::observe::{Observed, Sources};
use crate::plan::{MetadataChange, Obstacle, Plan, RevisionStep};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use operator_runtime::{ChildWriter, MissingReference, Scope, StepErrors, find};
use serde_json::{Value, json};
use slinky_api::labels::{REVISION_HASH, selector_labels};
use slinky_api::names::{controller as names, ssh_config};
use slinky_api::ownership::controller_reference;
use slinky_api::v1beta1::NodeSet;
use std::sync::Arc;

/// Patches finalizers and annotations of the NodeSet, in the observed version only.
async fn patch_metadata(
    nodeset: &NodeSet,
    change: &MetadataChange,
    sources: &Sources,
) -> Result<(), kube::Error> {
    let api: Api<NodeSet> = Api::namespaced(sources.client.clone(), &nodeset.namespace().unwrap_or_default());
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

/// Applies the children, as far as the plan has them.
pub async fn apply_children(
    observed: &Observed,
    plan: &Plan,
    sources: &Sources,
    scope: &Scope,
) -> Result<(), StepErrors> {
    let nodeset = observed.nodeset.as_ref();
    let mut writer = ChildWriter::new(scope, nodeset);
    if let Some(change) = &plan.metadata {
        writer.record("Metadata", patch_metadata(nodeset, change, sources).await);
    }
    if observed.controller.is_some() && nodeset.metadata.deletion_timestamp.is_none() {
        apply_shared(&mut writer, observed, sources).await;
        apply_ssh_config(&mut writer, nodeset, sources).await;
        for step in &plan.revisions.steps {
            let done = Box::pin(apply_revision(&mut writer, step, observed, sources, scope)).await;
            writer.record("Revisions", done);
        }
    }
    writer.finish()
}

/// The objects that the workers of all NodeSets of a cluster share.
async fn apply_shared(writer: &mut ChildWriter<'_, NodeSet>, observed: &Observed, sources: &Sources) {
    let nodeset = observed.nodeset.as_ref();
    let namespace = nodeset.namespace().unwrap_or_default();
    let cluster = &nodeset.spec.controller_ref.name;
    let siblings = || observed.siblings.iter().map(Arc::as_ref);
    if let Some(service) = build_worker_service(nodeset, siblings()).map_err(Obstacle::Build).transpose() {
        let live = find(&sources.services, &namespace, &names::workers_service(cluster));
        writer.apply("ClusterWorkerService", service, live.as_deref()).await;
    }
    if let Some(pdb) = build_worker_pdb(nodeset, siblings()) {
        let live = find(&sources.pdbs, &namespace, &names::workers_budget(cluster));
        writer.apply::<_, MissingReference>("ClusterWorkerPDB", Ok(pdb), live.as_deref()).await;
    }
}

async fn apply_ssh_config(writer: &mut ChildWriter<'_, NodeSet>, nodeset: &NodeSet, sources: &Sources) {
    if let Some(config) = build_ssh_config(nodeset) {
        let live = find(
            &sources.ssh_configs,
            &nodeset.namespace().unwrap_or_default(),
            &ssh_config(&nodeset.name_any()),
        );
        writer.apply::<_, MissingReference>("SSHConfig", Ok(config), live.as_deref()).await;
    }
}

/// Performs one revision step. Existing revisions are changed in the observed version only.
async fn apply_revision(
    writer: &mut ChildWriter<'_, NodeSet>,
    step: &RevisionStep,
    observed: &Observed,
    sources: &Sources,
    scope: &Scope,
) -> Result<(), kube::Error> {
    let nodeset = observed.nodeset.as_ref();
    let named = |name: &str| observed.revisions.iter().find(|revision| revision.name_any() == name);
    match step {
        RevisionStep::Create { hash, number } => {
            let revision = build_revision(nodeset, build_revision_data(nodeset), hash, *number);
            // Without an Event: users follow workers.
            let created = scope.applier().create(&revision).await;
            writer.record("Revisions", created);
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
            return patch_revision(
                named(name),
                json!({ "metadata": { "ownerReferences": owners } }),
                sources,
            )
            .await;
        }
        RevisionStep::Label { name, hash } => {
            let mut labels = json!(selector_labels(nodeset));
            labels[REVISION_HASH] = json!(hash);
            return patch_revision(named(name), json!({ "metadata": { "labels": labels } }), sources).await;
        }
        RevisionStep::Renumber { name, number } => {
            return patch_revision(named(name), json!({ "revision": number }), sources).await;
        }
    }
    Ok(())
}

async fn patch_revision(
    revision: Option<&Arc<ControllerRevision>>,
    mut patch: Value,
    sources: &Sources,
) -> Result<(), kube::Error> {
    let Some(revision) = revision else { return Ok(()) };
    patch["metadata"]["uid"] = json!(revision.uid());
    patch["metadata"]["resourceVersion"] = json!(revision.resource_version());
    let api: Api<ControllerRevision> =
        Api::namespaced(sources.client.clone(), &revision.namespace().unwrap_or_default());
    ignore_conflict(api.patch(&revision.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)
}

/// A conflict is no failure: the write that won brings the next reconcile.
fn ignore_conflict<K>(written: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}
