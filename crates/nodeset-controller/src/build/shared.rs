//! Metadata and selectors of objects that all NodeSets of a Slurm cluster share.
//!
//! They have a non-controller owner reference to each NodeSet and to the Controller, and are garbage-collected with the
//! Controller: a foreground deletion of the last NodeSet must not take them from workers that still have jobs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use slinky_api::labels::{CLUSTER, Labels};
use slinky_api::ownership::{retaining_reference, shared_reference};
use slinky_api::v1beta1::{Controller, NodeSet};
use std::collections::BTreeMap;

/// The labels that select the cluster's workers with this label.
pub fn worker_selector(nodeset: &NodeSet, key: &str, value: &str) -> Labels {
    let cluster = nodeset.spec.controller_ref.name.clone();
    BTreeMap::from([(CLUSTER.to_owned(), cluster), (key.to_owned(), value.to_owned())])
}

/// The metadata of a shared object; `None` without a NodeSet to own it.
pub fn shared_metadata<'a>(
    nodeset: &NodeSet,
    controller: &Controller,
    name: String,
    siblings: impl IntoIterator<Item = &'a NodeSet>,
) -> Option<ObjectMeta> {
    let mut owners = owners(nodeset, siblings);
    if owners.is_empty() {
        return None;
    }
    let is_deleted = controller.metadata.deletion_timestamp.is_some();
    owners.extend(retaining_reference(controller).filter(|_| !is_deleted));
    Some(ObjectMeta {
        name: Some(name),
        namespace: nodeset.namespace(),
        owner_references: Some(owners),
        ..ObjectMeta::default()
    })
}

/// One reference for each NodeSet of the cluster, sorted by name. A NodeSet that is being deleted is left out: foreground
/// deletion would wait for an object that other NodeSets still use.
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
pub mod fixture {
    use crate::fixture::nodeset;
    use serde_json::{Value, json};
    use slinky_api::v1beta1::NodeSet;

    /// A NodeSet of this name.
    pub fn named(name: &str, change: &Value) -> NodeSet {
        let mut nodeset = nodeset(change);
        nodeset.metadata.name = Some(name.to_owned());
        nodeset.metadata.uid = Some(format!("uid of {name}"));
        nodeset
    }

    /// A NodeSet that is being deleted.
    pub fn terminating(name: &str) -> NodeSet {
        let mut nodeset = named(name, &json!({}));
        nodeset.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        nodeset
    }

    /// Two owners of shared objects, and NodeSets that must not own them.
    pub fn siblings() -> Vec<NodeSet> {
        let mut elsewhere = named("elsewhere", &json!({}));
        elsewhere.metadata.namespace = Some("other".to_owned());
        let mut unstored = named("unstored", &json!({}));
        unstored.metadata.uid = None;
        let of_another_cluster = named("foreign", &json!({ "controllerRef": { "name": "another" } }));
        let (zeta, alpha) = (named("zeta", &json!({})), named("alpha", &json!({})));
        vec![zeta, alpha, elsewhere, terminating("deleted"), unstored, of_another_cluster]
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{named, siblings, terminating};
    use super::*;
    use crate::fixture::controller;
    use serde_json::json;

    #[test]
    fn metadata_does_not_depend_on_the_nodeset_and_the_order_of_siblings() {
        let mut siblings = siblings();
        let metadata = shared_metadata(&siblings[0], &controller(), "shared".to_owned(), &siblings);
        siblings.reverse();
        let alpha = named("alpha", &json!({}));
        assert_eq!(shared_metadata(&alpha, &controller(), "shared".to_owned(), &siblings), metadata);
    }

    #[test]
    fn object_without_owner_is_not_built() {
        let last = terminating("last");
        assert_eq!(shared_metadata(&last, &controller(), "shared".to_owned(), [&last]), None);
    }
}
