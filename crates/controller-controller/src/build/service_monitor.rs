//! The ServiceMonitor that makes Prometheus read slurmctld's metrics.

use kube::{CustomResource, ResourceExt};
use pod_builder::{child_metadata, merge_annotations, merge_labels};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use slinky_api::labels::{App, common_labels, selector_labels};
use slinky_api::names::controller as names;
use slinky_api::v1beta1::{Controller, MetricsEndpoint, ServiceMonitor as Wish};

/// What is read unless the user says otherwise.
const PATHS: &[&str] = &["/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler"];

/// The spec of a ServiceMonitor, which is the Prometheus operator's business.
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
    /// All of it.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// The ServiceMonitor `<name>-controller`; `None` if none is wanted, or if there is nothing of ours to read.
pub fn build_service_monitor(controller: &Controller) -> Option<ServiceMonitor> {
    let metrics = controller.spec.metrics.as_ref().filter(|metrics| metrics.enabled)?;
    let wish = metrics.service_monitor.as_ref().filter(|wish| wish.enabled && !controller.spec.external)?;
    let spec = json!({
        "selector": { "matchLabels": selector_labels(controller) },
        "namespaceSelector": { "matchNames": [controller.namespace()] },
        "endpoints": endpoints(wish),
    });
    Some(ServiceMonitor {
        metadata: child_metadata(
            controller,
            &names::workload(&controller.name_any()),
            merge_labels([Some(controller.labels()), wish.labels.as_ref(), Some(&common_labels(controller))]),
            merge_annotations([Some(controller.annotations()), wish.annotations.as_ref()]),
        ),
        spec: ServiceMonitorSpec { fields: spec.as_object().cloned().unwrap_or_default() },
    })
}

fn endpoints(wish: &Wish) -> Vec<Value> {
    let all = || PATHS.iter().map(|path| MetricsEndpoint { path: (*path).to_owned(), ..Default::default() });
    let chosen = wish.endpoints.clone().filter(|endpoints| !endpoints.is_empty());
    let endpoints = chosen.unwrap_or_else(|| all().collect());
    endpoints.into_iter().map(|endpoint| describe(endpoint, wish)).collect()
}

fn describe(endpoint: MetricsEndpoint, wish: &Wish) -> Value {
    let mut entry = json!({ "path": endpoint.path, "port": Controller::NAME, "scheme": "http" });
    let times = [
        ("interval", endpoint.interval.or_else(|| wish.interval.clone())),
        ("scrapeTimeout", endpoint.scrape_timeout.or_else(|| wish.scrape_timeout.clone())),
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
    fn an_endpoint_has_its_own_times_or_those_of_all() {
        let endpoints = json!([
            { "path": "/metrics/jobs", "interval": "5s" },
            { "path": "/metrics/jobs-users-accts", "scrapeTimeout": "9s" },
        ]);
        let wish = json!({ "enabled": true, "interval": "30s", "scrapeTimeout": "", "endpoints": endpoints });
        let common = |path: &str| json!({ "path": path, "port": "slurmctld", "scheme": "http" });
        let mut expected = [common("/metrics/jobs"), common("/metrics/jobs-users-accts")];
        expected[0]["interval"] = json!("5s");
        expected[1]["interval"] = json!("30s");
        expected[1]["scrapeTimeout"] = json!("9s");
        assert_eq!(build(&wish).unwrap().spec.fields["endpoints"], json!(expected));
    }

    #[rstest]
    #[case::nothing_said(json!({}))]
    #[case::no_metrics(json!({ "metrics": { "enabled": false, "serviceMonitor": { "enabled": true } } }))]
    #[case::not_wanted(json!({ "metrics": { "enabled": true, "serviceMonitor": { "enabled": false } } }))]
    #[case::metrics_alone(json!({ "metrics": { "enabled": true } }))]
    #[case::elsewhere(json!({
        "external": true,
        "metrics": { "enabled": true, "serviceMonitor": { "enabled": true } },
    }))]
    fn nobody_is_told_of_metrics_without_being_asked(#[case] change: Value) {
        assert_eq!(build_service_monitor(&controller(&change)), None);
    }
}
