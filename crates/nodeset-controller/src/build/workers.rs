//! What all NodeSets of a Slurm cluster share: the names of their workers, and the budget that protects them.
//!
//! Each NodeSet owns them a little and none controls them, so that they go with the last one.

use super::error::BuildError;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{ComponentPort, build_headless_spec};
use serde_json::json;
use slinky_api::labels::{APP_NAME, App, CLUSTER, Labels, POD_PROTECT, TRUE};
use slinky_api::names::SLURMD_PORT;
use slinky_api::names::controller as names;
use slinky_api::ownership::shared_reference;
use slinky_api::v1beta1::NodeSet;
use std::collections::BTreeMap;

const PORT: ComponentPort<'_> = ComponentPort { name: NodeSet::NAME, default: SLURMD_PORT };

/// The headless Service `slurm-workers-<controller>` by which workers are found. `None` if nobody is left to own it.
pub fn build_worker_service<'a>(
    nodeset: &NodeSet,
    siblings: impl IntoIterator<Item = &'a NodeSet>,
) -> Result<Option<RawObject<Service>>, BuildError> {
    let controller = &nodeset.spec.controller_ref.name;
    let Some(metadata) = shared_metadata(nodeset, names::workers_service(controller), siblings) else {
        return Ok(None);
    };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": build_headless_spec(PORT, &workers_with(nodeset, APP_NAME, NodeSet::NAME)),
    });
    Ok(Some(RawObject::new(service)?))
}

/// The budget `slurm-workers-pdb-<controller>`: no worker that is marked as busy may be evicted. `None` if nobody is left
/// to own it.
pub fn build_worker_pdb<'a>(
    nodeset: &NodeSet,
    siblings: impl IntoIterator<Item = &'a NodeSet>,
) -> Option<PodDisruptionBudget> {
    let name = names::workers_budget(&nodeset.spec.controller_ref.name);
    Some(PodDisruptionBudget {
        metadata: shared_metadata(nodeset, name, siblings)?,
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(0)),
            selector: Some(LabelSelector {
                match_labels: Some(workers_with(nodeset, POD_PROTECT, TRUE)),
                match_expressions: None,
            }),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}

fn workers_with(nodeset: &NodeSet, key: &str, value: &str) -> Labels {
    let cluster = nodeset.spec.controller_ref.name.clone();
    BTreeMap::from([(CLUSTER.to_owned(), cluster), (key.to_owned(), value.to_owned())])
}

fn shared_metadata<'a>(
    nodeset: &NodeSet,
    name: String,
    siblings: impl IntoIterator<Item = &'a NodeSet>,
) -> Option<ObjectMeta> {
    let owners = owners(nodeset, siblings);
    (!owners.is_empty()).then(|| ObjectMeta {
        name: Some(name),
        namespace: nodeset.namespace(),
        owner_references: Some(owners),
        ..ObjectMeta::default()
    })
}

/// One reference for each NodeSet of the same cluster, in the order of their names. One that is being deleted lets go: it
/// would wait for what others still use.
fn owners<'a>(nodeset: &NodeSet, siblings: impl IntoIterator<Item = &'a NodeSet>) -> Vec<OwnerReference> {
    let is_owner = |other: &&NodeSet| {
        other.namespace() == nodeset.namespace()
            && other.spec.controller_ref == nodeset.spec.controller_ref
            && other.metadata.deletion_timestamp.is_none()
    };
    let owners = siblings.into_iter().filter(is_owner);
    let by_name: BTreeMap<String, OwnerReference> =
        owners.filter_map(|owner| Some((owner.name_any(), shared_reference(owner)?))).collect();
    by_name.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::nodeset;
    use serde_json::Value;

    fn named(name: &str, change: &Value) -> NodeSet {
        let mut nodeset = nodeset(change);
        nodeset.metadata.name = Some(name.to_owned());
        nodeset.metadata.uid = Some(format!("uid of {name}"));
        nodeset
    }

    fn siblings() -> Vec<NodeSet> {
        let mut elsewhere = named("elsewhere", &json!({}));
        elsewhere.metadata.namespace = Some("other".to_owned());
        let mut deleted = named("deleted", &json!({}));
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        let mut unstored = named("unstored", &json!({}));
        unstored.metadata.uid = None;
        let of_another_cluster = named("foreign", &json!({ "controllerRef": { "name": "another" } }));
        let (zeta, alpha) = (named("zeta", &json!({})), named("alpha", &json!({})));
        vec![zeta, alpha, elsewhere, deleted, unstored, of_another_cluster]
    }

    #[test]
    fn service() {
        let siblings = siblings();
        let service = build_worker_service(&siblings[0], &siblings).unwrap().unwrap();
        insta::assert_yaml_snapshot!(service.as_json());
    }

    #[test]
    fn budget() {
        let siblings = siblings();
        insta::assert_yaml_snapshot!(build_worker_pdb(&siblings[0], &siblings).unwrap());
    }

    #[test]
    fn whoever_builds_them_builds_the_same() {
        let mut siblings = siblings();
        let built = build_worker_pdb(&siblings[0], &siblings);
        siblings.reverse();
        assert_eq!(build_worker_pdb(&named("alpha", &json!({})), &siblings), built);
    }

    #[test]
    fn what_nobody_owns_is_left_to_be_collected() {
        let mut last = named("last", &json!({}));
        last.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(build_worker_service(&last, [&last]).unwrap().is_none());
        assert_eq!(build_worker_pdb(&last, [&last]), None);
    }
}
