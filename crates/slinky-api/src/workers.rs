//! Worker pods and the slurmrestd that knows their nodes.

use crate::labels::{APP_NAME, App, SCALING_MODE};
use crate::names::{SLURMRESTD_PORT, restapi_workload, service_host};
use crate::v1beta1::{NodeSet, RestApi, ScalingMode};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};

/// Length of the random end of a name that the API server generates.
const RANDOM_SUFFIX: usize = 5;

/// Whether a pod is a worker, by its labels.
pub fn is_worker(pod: &impl Resource) -> bool {
    pod.labels().get(APP_NAME).is_some_and(|name| name == NodeSet::NAME)
}

/// The scaling mode that a worker was created in, from its label; without one, from its name and node. `None` if nothing
/// tells it.
pub fn scaling_mode(pod: &Pod) -> Option<ScalingMode> {
    match pod.labels().get(SCALING_MODE).map(String::as_str) {
        Some("StatefulSet") => Some(ScalingMode::StatefulSet),
        Some("DaemonSet") => Some(ScalingMode::DaemonSet),
        Some(_) => None,
        None => unlabelled_mode_of(pod),
    }
}

/// The mode of a pod that an earlier release created, without the label.
fn unlabelled_mode_of(pod: &Pod) -> Option<ScalingMode> {
    let is_daemon = required_node(pod).is_some();
    let name = pod.name_any();
    // Five random characters may all be digits.
    let may_be_random = name.rsplit('-').next().is_some_and(|suffix| suffix.len() == RANDOM_SUFFIX);
    match ordinal_of(&name) {
        Some(_) if !(is_daemon && may_be_random) => Some(ScalingMode::StatefulSet),
        Some(_) | None => is_daemon.then_some(ScalingMode::DaemonSet),
    }
}

/// The only Kubernetes node that a pod may run on, by its affinity.
pub fn required_node(pod: &Pod) -> Option<&str> {
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    match names.next()?.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

/// Splits a name into its parent's name and the ordinal after the last dash.
pub fn ordinal_of(name: &str) -> Option<(&str, i32)> {
    let (parent, number) = name.rsplit_once('-')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((parent, number.parse().ok()?))
}

/// The name of a worker's node in Slurm.
pub fn slurm_node_name(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let hostname = spec.and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
    if scaling_mode(pod) != Some(ScalingMode::StatefulSet) {
        return hostname.unwrap_or_default();
    }
    match spec {
        // slurmd cuts the hostname of its machine at the first dot.
        Some(spec) if spec.host_network == Some(true) => {
            let node = spec.node_name.as_deref().unwrap_or_default();
            node.split('.').next().unwrap_or_default().to_owned()
        }
        _ => hostname.unwrap_or_else(|| pod.name_any()),
    }
}

/// The URL of the slurmrestd of a Controller's oldest RestApi; one that is being deleted only if there is no other.
pub fn slurmrestd_url<'r>(
    namespace: &str,
    controller: &str,
    restapis: impl IntoIterator<Item = &'r RestApi>,
) -> Option<String> {
    let serves = |restapi: &&RestApi| {
        restapi.namespace().as_deref() == Some(namespace) && restapi.spec.controller_ref.name == controller
    };
    let rank = |restapi: &&RestApi| {
        let meta = &restapi.metadata;
        (meta.deletion_timestamp.is_some(), meta.creation_timestamp.clone(), restapi.name_any())
    };
    restapis.into_iter().filter(serves).min_by_key(rank).map(url)
}

fn url(restapi: &RestApi) -> String {
    let service = restapi_workload(&restapi.name_any());
    let host = service_host(&service, &restapi.namespace().unwrap_or_default());
    let port = restapi.spec.service.as_ref().and_then(|service| service.port).filter(|port| *port != 0);
    format!("http://{host}:{}", port.unwrap_or(SLURMRESTD_PORT.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn restapi(name: &str, created: u32, change: &Value) -> RestApi {
        let mut restapi = json!({
            "metadata": {
                "name": name, "namespace": "ns", "creationTimestamp": format!("2027-01-01T00:00:{created:02}Z"),
            },
            "spec": { "controllerRef": { "name": "slurm" } },
        });
        for (path, value) in change.as_object().unwrap() {
            *restapi.pointer_mut(path).unwrap() = value.clone();
        }
        serde_json::from_value(restapi).unwrap()
    }

    fn terminating(name: &str, created: u32) -> RestApi {
        let mut restapi = plain(name, created);
        restapi.metadata.deletion_timestamp = restapi.metadata.creation_timestamp.clone();
        restapi
    }

    fn plain(name: &str, created: u32) -> RestApi {
        restapi(name, created, &json!({}))
    }

    fn on_port(port: i64) -> RestApi {
        let spec = json!({ "controllerRef": { "name": "slurm" }, "service": { "port": port } });
        restapi("a", 0, &json!({ "/spec": spec }))
    }

    #[rstest]
    #[case::none(vec![], None)]
    #[case::one(vec![plain("a", 0)], Some("http://a-restapi.ns:6820"))]
    #[case::oldest(vec![plain("a", 2), plain("b", 1)], Some("http://b-restapi.ns:6820"))]
    #[case::first_name_of_the_same_age(vec![plain("b", 1), plain("a", 1)], Some("http://a-restapi.ns:6820"))]
    #[case::terminating_after_others(vec![terminating("a", 0), plain("b", 1)], Some("http://b-restapi.ns:6820"))]
    #[case::only_a_terminating_one(vec![terminating("a", 0)], Some("http://a-restapi.ns:6820"))]
    #[case::other_port(vec![on_port(8080)], Some("http://a-restapi.ns:8080"))]
    #[case::default_port(vec![on_port(0)], Some("http://a-restapi.ns:6820"))]
    #[case::other_namespace(vec![restapi("a", 0, &json!({ "/metadata/namespace": "other" }))], None)]
    #[case::other_controller(vec![restapi("a", 0, &json!({ "/spec/controllerRef/name": "other" }))], None)]
    fn oldest_restapi_that_is_not_terminating_is_selected(
        #[case] restapis: Vec<RestApi>,
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(slurmrestd_url("ns", "slurm", &restapis).as_deref(), expected);
    }
}
