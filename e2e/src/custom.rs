//! The custom resources in a real API server: definitions installed, objects of any kind.

use crate::eventually;
use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::Duration;

/// Installs the definitions and waits until the API server serves them.
pub async fn install_definitions(client: &Client) -> Result<Vec<CustomResourceDefinition>> {
    let definitions = slinky_api::crd::all()?;
    for definition in &definitions {
        install(client, definition).await?;
    }
    Ok(definitions)
}

/// Installs a definition of ServiceMonitors that accepts anything.
pub async fn install_service_monitors(client: &Client) -> Result<()> {
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
        "definition is served",
        Duration::from_secs(20),
        || async { Ok(api.get(&name).await?) },
        |seen| {
            seen.status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
        },
    )
    .await?;
    Ok(())
}

/// How the API server names a kind of ours.
pub fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(slinky_api::GROUP, slinky_api::VERSION, kind))
}

/// Objects of one of our kinds, known by its name only.
pub fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(kind))
}

/// Creates an object with a request in which an unknown field is an error, as kubectl does.
pub async fn create_strictly(
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
