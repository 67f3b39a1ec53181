//! The headless Service of a cluster's workers: it gives them their DNS names.

use super::error::BuildError;
use super::shared::{shared_metadata, worker_selector};
use k8s_openapi::api::core::v1::Service;
use operator_runtime::RawObject;
use pod_builder::{ComponentPort, build_headless_spec};
use serde_json::json;
use slinky_api::labels::{APP_NAME, App};
use slinky_api::names::SLURMD_PORT;
use slinky_api::names::controller::workers_service;
use slinky_api::v1beta1::{Controller, NodeSet};

const PORT: ComponentPort<'_> = ComponentPort { name: NodeSet::NAME, default: SLURMD_PORT };

/// The Service `slurm-workers-<controller>`. `None` without a NodeSet to own it.
pub fn build_worker_service<'a>(
    nodeset: &NodeSet,
    controller: &Controller,
    siblings: impl IntoIterator<Item = &'a NodeSet>,
) -> Result<Option<RawObject<Service>>, BuildError> {
    let name = workers_service(&nodeset.spec.controller_ref.name);
    let Some(metadata) = shared_metadata(nodeset, controller, name, siblings) else { return Ok(None) };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": build_headless_spec(PORT, &worker_selector(nodeset, APP_NAME, NodeSet::NAME)),
    });
    Ok(Some(RawObject::new(service)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::shared::fixture::siblings;
    use crate::fixture::controller;

    #[test]
    fn service() {
        let siblings = siblings();
        let service = build_worker_service(&siblings[0], &controller(), &siblings).unwrap().unwrap();
        insta::assert_yaml_snapshot!(service.as_json());
    }
}
