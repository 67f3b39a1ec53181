//! The Service of slurmrestd.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{BuildError, ComponentService, build_component_service};
use slinky_api::labels::selector_labels;
use slinky_api::names::{SLURMRESTD_PORT, restapi_workload};
use slinky_api::v1beta1::RestApi;

/// Builds the Service `<name>-restapi`. It carries the metadata of the user's template, not that of the RestApi.
pub fn build_service(restapi: &RestApi) -> Result<RawObject<Service>, BuildError> {
    let service = ComponentService {
        name: &restapi_workload(&restapi.name_any()),
        default_port: SLURMRESTD_PORT,
        selector: selector_labels(restapi),
        template: restapi.spec.service.as_ref(),
        inherits_metadata: false,
    };
    Ok(RawObject::new(build_component_service(restapi, &service)?)?)
}
