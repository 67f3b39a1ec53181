//! The Service of slurmrestd.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{
    BuildError, ComponentPort, build_service_spec, child_metadata, merge_annotations, merge_labels,
};
use serde_json::json;
use slinky_api::labels::{App, common_labels, selector_labels};
use slinky_api::names::{SLURMRESTD_PORT, restapi_workload};
use slinky_api::v1beta1::RestApi;

/// The Service `<name>-restapi`. It carries the metadata that the user gave it, and not the RestApi's own.
pub fn build_service(restapi: &RestApi) -> Result<RawObject<Service>, BuildError> {
    let template = restapi.spec.service.clone().unwrap_or_default();
    let user = template.metadata.clone().unwrap_or_default();
    let port = ComponentPort { name: RestApi::NAME, default: SLURMRESTD_PORT };
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(
            restapi,
            &restapi_workload(&restapi.name_any()),
            merge_labels([user.labels.as_ref(), Some(&common_labels(restapi))]),
            merge_annotations([user.annotations.as_ref()]),
        ),
        "spec": build_service_spec(&template, port, &selector_labels(restapi))?,
    });
    Ok(RawObject::new(service)?)
}
