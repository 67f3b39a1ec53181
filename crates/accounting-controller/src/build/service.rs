//! The Service of slurmdbd.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{
    BuildError, ComponentPort, build_service_spec, child_metadata, merge_annotations, merge_labels,
};
use serde_json::json;
use slinky_api::labels::{App, common_labels, selector_labels};
use slinky_api::names::{SLURMDBD_PORT, accounting::workload};
use slinky_api::v1beta1::Accounting;

/// The Service `<name>-accounting`.
pub fn build_service(accounting: &Accounting) -> Result<RawObject<Service>, BuildError> {
    let template = accounting.spec.service.clone().unwrap_or_default();
    let user = template.metadata.clone().unwrap_or_default();
    let port = ComponentPort { name: Accounting::NAME, default: SLURMDBD_PORT };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(
            accounting,
            &workload(&accounting.name_any()),
            merge_labels([Some(accounting.labels()), user.labels.as_ref(), Some(&common_labels(accounting))]),
            merge_annotations([Some(accounting.annotations()), user.annotations.as_ref()]),
        ),
        "spec": build_service_spec(&template, port, &selector_labels(accounting))?,
    });
    Ok(RawObject::new(service)?)
}

#[cfg(test)]
mod tests {
    use super::build_service;
    use crate::fixture::accounting;
    use serde_json::json;

    #[test]
    fn service() {
        let accounting = accounting(&json!({ "service": {
            "port": 6899,
            "metadata": { "labels": { "tier": "db" } },
            "spec": { "type": "LoadBalancer" },
        }}));
        insta::assert_yaml_snapshot!(build_service(&accounting).unwrap());
    }
}
