//! The objects of a NodeSet that are functions of its spec: what workers share, the configuration of their sshd, and the
//! revisions that they are made from. Not effects: they are applied whenever they differ.

use crate::build::{
    build_revision, build_revision_data, build_ssh_config, build_workers_budget, build_workers_service,
};
use crate::observe::Observed;
use crate::plan::{MetadataChange, Obstacle, Plan, RevisionStep};
use crate::world::World;
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

/// Patches the NodeSet's own finalizers and annotations, in the version that was decided on.
async fn hold(nodeset: &NodeSet, change: &MetadataChange, world: &World) -> Result<(), kube::Error> {
    let api: Api<NodeSet> = Api::namespaced(world.client.clone(), &nodeset.namespace().unwrap_or_default());
    let mut metadata = json!({ "uid": nodeset.uid(), "resourceVersion": nodeset.resource_version(), "annotations": change.annotations });
    if let Some(finalizers) = &change.finalizers {
        metadata["finalizers"] = json!(finalizers);
    }
    let body = json!({ "metadata": metadata });
    settled(api.patch(&nodeset.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await)
}

/// Makes the children what they should be, as far as that can be told.
pub async fn apply_children(
    observed: &Observed,
    plan: &Plan,
    world: &World,
    scope: &Scope,
) -> Result<(), StepErrors> {
    let nodeset = observed.nodeset.as_ref();
    let mut pass = ChildWriter::new(scope, nodeset);
    if let Some(change) = &plan.metadata {
        pass.keep("Metadata", hold(nodeset, change, world).await);
    }
    if observed.controller.is_some() && nodeset.metadata.deletion_timestamp.is_none() {
        apply_shared(&mut pass, observed, world).await;
        apply_ssh_config(&mut pass, nodeset, world).await;
        for step in &plan.revisions.steps {
            let done = Box::pin(apply_revision(&mut pass, step, observed, world, scope)).await;
            pass.keep("Revisions", done);
        }
    }
    pass.finish()
}

/// What the workers of all NodeSets of a cluster share.
async fn apply_shared(pass: &mut ChildWriter<'_, NodeSet>, observed: &Observed, world: &World) {
    let nodeset = observed.nodeset.as_ref();
    let namespace = nodeset.namespace().unwrap_or_default();
    let cluster = &nodeset.spec.controller_ref.name;
    let siblings = || observed.siblings.iter().map(Arc::as_ref);
    if let Some(service) = build_workers_service(nodeset, siblings()).map_err(Obstacle::Build).transpose() {
        let live = find(&world.services, &namespace, &names::workers_service(cluster));
        pass.apply("ClusterWorkerService", service, live.as_deref()).await;
    }
    if let Some(budget) = build_workers_budget(nodeset, siblings()) {
        let live = find(&world.budgets, &namespace, &names::workers_budget(cluster));
        pass.apply::<_, MissingReference>("ClusterWorkerPDB", Ok(budget), live.as_deref()).await;
    }
}

async fn apply_ssh_config(pass: &mut ChildWriter<'_, NodeSet>, nodeset: &NodeSet, world: &World) {
    if let Some(config) = build_ssh_config(nodeset) {
        let live =
            find(&world.configs, &nodeset.namespace().unwrap_or_default(), &ssh_config(&nodeset.name_any()));
        pass.apply::<_, MissingReference>("SSHConfig", Ok(config), live.as_deref()).await;
    }
}

/// One step about a revision. Those that exist are changed in the version that was decided on, or not at all.
async fn apply_revision(
    pass: &mut ChildWriter<'_, NodeSet>,
    step: &RevisionStep,
    observed: &Observed,
    world: &World,
    scope: &Scope,
) -> Result<(), kube::Error> {
    let nodeset = observed.nodeset.as_ref();
    let named = |name: &str| observed.revisions.iter().find(|revision| revision.name_any() == name);
    match step {
        RevisionStep::Create { hash, number } => {
            let revision = build_revision(nodeset, build_revision_data(nodeset), hash, *number);
            // Quietly: people are told of workers.
            let made = scope.applier().create(&revision).await;
            pass.keep("Revisions", made);
        }
        RevisionStep::Delete(name) => {
            if let Some(revision) = named(name) {
                let deleted = scope.applier().delete_if_owned(revision.as_ref(), nodeset).await;
                pass.keep("Revisions", deleted);
            }
        }
        RevisionStep::Adopt(name) => {
            let owners = named(name).map(|revision| revision.owner_references().to_vec()).unwrap_or_default();
            let owners: Vec<_> = owners.into_iter().chain(controller_reference(nodeset)).collect();
            return change(named(name), json!({ "metadata": { "ownerReferences": owners } }), world).await;
        }
        RevisionStep::Label { name, hash } => {
            let mut labels = json!(selector_labels(nodeset));
            labels[REVISION_HASH] = json!(hash);
            return change(named(name), json!({ "metadata": { "labels": labels } }), world).await;
        }
        RevisionStep::Renumber { name, number } => {
            return change(named(name), json!({ "revision": number }), world).await;
        }
    }
    Ok(())
}

async fn change(
    revision: Option<&Arc<ControllerRevision>>,
    mut change: Value,
    world: &World,
) -> Result<(), kube::Error> {
    let Some(revision) = revision else { return Ok(()) };
    change["metadata"]["uid"] = json!(revision.uid());
    change["metadata"]["resourceVersion"] = json!(revision.resource_version());
    let api: Api<ControllerRevision> =
        Api::namespaced(world.client.clone(), &revision.namespace().unwrap_or_default());
    settled(api.patch(&revision.name_any(), &PatchParams::default(), &Patch::Merge(&change)).await)
}

/// A write that lost a race is none that failed: the other one brings the next pass.
fn settled<K>(written: Result<K, kube::Error>) -> Result<(), kube::Error> {
    match written {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        result => result.map(drop),
    }
}
