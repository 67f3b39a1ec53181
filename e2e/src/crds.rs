//! Installs CRDs, and accesses custom resources by kind.

use crate::eventually;
use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::Duration;

/// Installs the CRDs of the operator and waits until the API server serves them.
pub async fn install_crds(client: &Client) -> Result<Vec<CustomResourceDefinition>> {
    let definitions = slinky_api::crd::all()?;
    for definition in &definitions {
        install(client, definition).await?;
    }
    Ok(definitions)
}

/// Installs a CRD of ServiceMonitors whose schema accepts anything.
pub async fn install_service_monitor_crd(client: &Client) -> Result<()> {
    let definition = json!({
        "metadata": { "name": "servicemonitors.monitoring.coreos.com" },
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {
                "kind": "ServiceMonitor", "listKind": "ServiceMonitorList",
                "plural": "servicemonitors", "singular": "servicemonitor",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    install(client, &serde_json::from_value(definition)?).await
}

async fn install(client: &Client, definition: &CustomResourceDefinition) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    api.patch(&name, &PatchParams::apply("e2e").force(), &Patch::Apply(definition)).await?;
    eventually(
        "an established CRD",
        Duration::from_secs(20),
        || async { Ok(api.get(&name).await?) },
        |crd| {
            crd.status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
        },
    )
    .await?;
    Ok(())
}

/// The API resource of one of our kinds.
pub fn api_resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(slinky_api::GROUP, slinky_api::VERSION, kind))
}

/// Untyped access to objects of one of our kinds.
pub fn dynamic_api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(kind))
}

/// Creates an object with strict field validation, as kubectl does: an unknown field is an error.
pub async fn create_strict(
    client: &Client,
    api: &Api<DynamicObject>,
    object: &DynamicObject,
) -> Result<DynamicObject, kube::Error> {
    let request = http::Request::post(format!("{}?fieldValidation=Strict", api.resource_url()))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(object).map_err(kube::Error::SerdeError)?)
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}
