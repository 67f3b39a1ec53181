//! The ServiceMonitor that makes Prometheus read slurmctld's metrics.

use kube::{CustomResource, ResourceExt};
use pod_builder::component_metadata;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use slinky_api::labels::{App, selector_labels};
use slinky_api::names::controller as names;
use slinky_api::v1beta1::{Controller, Metadata, MetricsEndpoint, ServiceMonitor as MonitorSpec};

/// The endpoints that Prometheus scrapes if the spec names none.
const PATHS: &[&str] = &["/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler"];

/// The spec of a ServiceMonitor, whose schema belongs to the Prometheus operator.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "monitoring.coreos.com",
    version = "v1",
    kind = "ServiceMonitor",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct ServiceMonitorSpec {
    /// All fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// True if the spec wants a ServiceMonitor.
pub fn wants_service_monitor(controller: &Controller) -> bool {
    monitor_spec(controller).is_some()
}

/// The ServiceMonitor `<name>-controller`, if the spec wants one.
pub fn build_service_monitor(controller: &Controller) -> Option<ServiceMonitor> {
    let monitor = monitor_spec(controller)?;
    let spec = json!({
        "selector": { "matchLabels": selector_labels(controller) },
        "namespaceSelector": { "matchNames": [controller.namespace()] },
        "endpoints": endpoints(monitor),
    });
    let user = Metadata { labels: monitor.labels.clone(), annotations: monitor.annotations.clone() };
    Some(ServiceMonitor {
        metadata: component_metadata(controller, &names::workload(&controller.name_any()), Some(&user)),
        spec: ServiceMonitorSpec { fields: spec.as_object().cloned().unwrap_or_default() },
    })
}

/// The settings of the ServiceMonitor, if the spec enables one. An external cluster has no slurmctld here to scrape.
fn monitor_spec(controller: &Controller) -> Option<&MonitorSpec> {
    let metrics = controller.spec.metrics.as_ref().filter(|metrics| metrics.enabled)?;
    metrics.service_monitor.as_ref().filter(|monitor| monitor.enabled && !controller.spec.external)
}

fn endpoints(monitor: &MonitorSpec) -> Vec<Value> {
    let all = || PATHS.iter().map(|path| MetricsEndpoint { path: (*path).to_owned(), ..Default::default() });
    let chosen = monitor.endpoints.clone().filter(|endpoints| !endpoints.is_empty());
    let endpoints = chosen.unwrap_or_else(|| all().collect());
    endpoints.into_iter().map(|endpoint| build_endpoint(endpoint, monitor)).collect()
}

fn build_endpoint(endpoint: MetricsEndpoint, monitor: &MonitorSpec) -> Value {
    let mut entry = json!({ "path": endpoint.path, "port": Controller::NAME, "scheme": "http" });
    let times = [
        ("interval", endpoint.interval.or_else(|| monitor.interval.clone())),
        ("scrapeTimeout", endpoint.scrape_timeout.or_else(|| monitor.scrape_timeout.clone())),
    ];
    for (key, time) in times {
        if let Some(time) = time.filter(|time| !time.is_empty()) {
            entry[key] = json!(time);
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::controller;
    use rstest::rstest;

    fn build(monitor: &Value) -> Option<ServiceMonitor> {
        let metrics = json!({ "enabled": true, "serviceMonitor": monitor });
        build_service_monitor(&controller(&json!({ "metrics": metrics })))
    }

    #[test]
    fn service_monitor() {
        insta::assert_yaml_snapshot!(build(&json!({
            "enabled": true,
            "labels": { "release": "prometheus" },
            "annotations": { "a": "1" },
            "interval": "30s",
        })));
    }

    #[test]
    fn endpoint_times_default_to_those_of_the_monitor() {
        let endpoints = json!([
            { "path": "/metrics/jobs", "interval": "5s" },
            { "path": "/metrics/jobs-users-accts", "scrapeTimeout": "9s" },
        ]);
        let monitor =
            json!({ "enabled": true, "interval": "30s", "scrapeTimeout": "", "endpoints": endpoints });
        let common = |path: &str| json!({ "path": path, "port": "slurmctld", "scheme": "http" });
        let mut expected = [common("/metrics/jobs"), common("/metrics/jobs-users-accts")];
        expected[0]["interval"] = json!("5s");
        expected[1]["interval"] = json!("30s");
        expected[1]["scrapeTimeout"] = json!("9s");
        assert_eq!(build(&monitor).unwrap().spec.fields["endpoints"], json!(expected));
    }

    #[rstest]
    #[case::unset(json!({}))]
    #[case::metrics_disabled(json!({ "metrics": { "enabled": false, "serviceMonitor": { "enabled": true } } }))]
    #[case::monitor_disabled(json!({ "metrics": { "enabled": true, "serviceMonitor": { "enabled": false } } }))]
    #[case::monitor_unset(json!({ "metrics": { "enabled": true } }))]
    #[case::external(json!({
        "external": true,
        "metrics": { "enabled": true, "serviceMonitor": { "enabled": true } },
    }))]
    fn no_service_monitor_unless_the_spec_enables_it(#[case] change: Value) {
        assert_eq!(build_service_monitor(&controller(&change)), None);
    }
}
