//! The Service of slurmdbd.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{BuildError, ComponentService, build_component_service};
use slinky_api::labels::selector_labels;
use slinky_api::names::{SLURMDBD_PORT, accounting::workload};
use slinky_api::v1beta1::Accounting;

/// Builds the Service `<name>-accounting`.
pub fn build_service(accounting: &Accounting) -> Result<RawObject<Service>, BuildError> {
    let service = ComponentService {
        name: &workload(&accounting.name_any()),
        default_port: SLURMDBD_PORT,
        selector: selector_labels(accounting),
        template: accounting.spec.service.as_ref(),
        inherits_metadata: true,
    };
    Ok(RawObject::new(build_component_service(accounting, &service)?)?)
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
