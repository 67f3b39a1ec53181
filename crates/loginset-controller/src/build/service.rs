//! The Service through which users reach the login pods.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{
    BuildError, ComponentPort, build_service_spec, child_metadata, merge_annotations, merge_labels,
};
use serde_json::json;
use slinky_api::labels::{App, common_labels, selector_labels};
use slinky_api::names::SSH_PORT;
use slinky_api::v1beta1::LoginSet;

/// The Service of the LoginSet's own name.
pub fn build_service(loginset: &LoginSet) -> Result<RawObject<Service>, BuildError> {
    let template = loginset.spec.service.clone().unwrap_or_default();
    let user = template.metadata.clone().unwrap_or_default();
    let port = ComponentPort { name: LoginSet::NAME, default: SSH_PORT };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(
            loginset,
            &loginset.name_any(),
            merge_labels([Some(loginset.labels()), user.labels.as_ref(), Some(&common_labels(loginset))]),
            merge_annotations([Some(loginset.annotations()), user.annotations.as_ref()]),
        ),
        "spec": build_service_spec(&template, port, &selector_labels(loginset))?,
    });
    Ok(RawObject::new(service)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;

    #[test]
    fn service() {
        let change = json!({
            "service": { "port": 2222, "metadata": { "labels": { "lb": "1" } }, "spec": { "type": "NodePort" } },
        });
        insta::assert_yaml_snapshot!(build_service(&loginset(&change)).unwrap());
    }
}
