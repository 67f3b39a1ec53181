//! The Service by which users reach the login pods.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{BuildError, ComponentService, build_component_service};
use slinky_api::labels::selector_labels;
use slinky_api::names::SSH_PORT;
use slinky_api::v1beta1::LoginSet;

/// Builds the Service, which has the name of the LoginSet.
pub fn build_service(loginset: &LoginSet) -> Result<RawObject<Service>, BuildError> {
    let service = ComponentService {
        name: &loginset.name_any(),
        default_port: SSH_PORT,
        selector: selector_labels(loginset),
        template: loginset.spec.service.as_ref(),
        inherits_metadata: true,
    };
    Ok(RawObject::new(build_component_service(loginset, &service)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use serde_json::json;

    #[test]
    fn service() {
        let change = json!({
            "service": { "port": 2222, "metadata": { "labels": { "lb": "1" } }, "spec": { "type": "NodePort" } },
        });
        insta::assert_yaml_snapshot!(build_service(&loginset(&change)).unwrap());
    }
}
