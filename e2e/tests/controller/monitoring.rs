//! ServiceMonitors, with and without their CRD.

use crate::fixture::{CHILD, NAME, apply_controller, start, wait_for_conf_line};
use anyhow::Result;
use e2e::crds::install_service_monitor_crd;
use e2e::eventually;
use e2e::fixtures::apply_keys;
use e2e::test_env::{SOON, condition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::json;
use slinky_api::conditions::{MONITORED, READY};
use slinky_api::v1beta1::Controller;

const SERVICE_MONITORS: &str = "servicemonitors.monitoring.coreos.com";

async fn remove_service_monitor_crd(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    if definitions.get_opt(SERVICE_MONITORS).await?.is_some() {
        definitions.delete(SERVICE_MONITORS, &DeleteParams::default()).await?;
    }
    let get = async || Ok(definitions.get_opt(SERVICE_MONITORS).await?);
    eventually("deletion of the CRD", SOON, get, Option::is_none).await?;
    Ok(())
}

/// A CRD is not namespaced, so one test removes it and installs it again.
#[tokio::test]
async fn service_monitor_exists_once_its_crd_is_installed() -> Result<()> {
    let env = start("metrics").await?;
    remove_service_monitor_crd(env.client()).await?;
    apply_keys(&env).await?;
    let metrics =
        |enabled| json!({ "metrics": { "enabled": true, "serviceMonitor": { "enabled": enabled } } });
    apply_controller(&env, NAME, metrics(true)).await?;
    let unmonitored = env.wait_for_ready_reason::<Controller>(NAME, "RollingOut").await?;
    let monitored = condition(&unmonitored, MONITORED)?;
    assert_eq!(
        (monitored.status.as_str(), monitored.reason.as_str()),
        ("False", "ServiceMonitorUnavailable")
    );
    assert_eq!(env.wait_for_event(NAME, "ServiceMonitorUnavailable").await?.note, Some(monitored.message));
    wait_for_conf_line(&env, "MetricsType=metrics/openmetrics").await?;
    // A missing kind is not requested again and again.
    env.ensure_idle().await?;

    install_service_monitor_crd(env.client()).await?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor"));
    let monitors: Api<DynamicObject> = Api::namespaced_with(env.client().clone(), env.namespace(), &kind);
    env.patch_spec::<Controller>(NAME, json!({ "extraConf": "MinJobAge=99" })).await?;
    let get = async || Ok(monitors.get(CHILD).await?);
    let created = eventually("a ServiceMonitor", SOON, get, |_| true).await?;
    assert_eq!(created.data["spec"]["endpoints"].as_array().unwrap().len(), 4);
    let is_monitored = |controller: &Controller| {
        condition(controller, MONITORED).is_ok_and(|monitored| monitored.status == "True")
    };
    env.wait_until(NAME, is_monitored).await?;

    monitors.delete(CHILD, &DeleteParams::default()).await?;
    eventually("a new ServiceMonitor", SOON, get, |monitor| monitor.uid() != created.uid()).await?;
    env.ensure_idle().await?;

    env.patch_spec::<Controller>(NAME, metrics(false)).await?;
    let get = async || Ok(monitors.get_opt(CHILD).await?);
    eventually("deletion of the ServiceMonitor", SOON, get, Option::is_none).await?;
    let controller =
        env.wait_until(NAME, |controller: &Controller| condition(controller, MONITORED).is_err());
    assert_eq!(condition(&controller.await?, READY)?.reason, "RollingOut");
    env.tear_down().await
}
