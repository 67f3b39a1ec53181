//! Selects the slurmrestd of a cluster. Pure.

use super::ClusterKey;
use kube::ResourceExt;
use slinky_api::names::{SLURMRESTD_PORT, restapi_workload, service_host};
use slinky_api::v1beta1::RestApi;
use std::sync::Arc;

/// The URL of the slurmrestd of the cluster's oldest RestApi; one that is being deleted only if there is no other.
pub fn endpoint(key: &ClusterKey, restapis: &[Arc<RestApi>]) -> Option<String> {
    let serves = |restapi: &&Arc<RestApi>| {
        restapi.namespace().as_deref() == Some(key.namespace.as_str())
            && restapi.spec.controller_ref.name == key.controller
    };
    let rank = |restapi: &&Arc<RestApi>| {
        let meta = &restapi.metadata;
        (meta.deletion_timestamp.is_some(), meta.creation_timestamp.clone(), restapi.name_any())
    };
    restapis.iter().filter(serves).min_by_key(rank).map(|restapi| url(restapi))
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

    fn restapi(name: &str, created: u32, change: &Value) -> Arc<RestApi> {
        let mut restapi = json!({
            "metadata": {
                "name": name, "namespace": "ns", "creationTimestamp": format!("2027-01-01T00:00:{created:02}Z"),
            },
            "spec": { "controllerRef": { "name": "slurm" } },
        });
        for (path, value) in change.as_object().unwrap() {
            *restapi.pointer_mut(path).unwrap() = value.clone();
        }
        Arc::new(serde_json::from_value(restapi).unwrap())
    }

    fn terminating(name: &str, created: u32) -> Arc<RestApi> {
        let mut restapi = restapi(name, created, &json!({})).as_ref().clone();
        restapi.metadata.deletion_timestamp = restapi.metadata.creation_timestamp.clone();
        Arc::new(restapi)
    }

    fn plain(name: &str, created: u32) -> Arc<RestApi> {
        restapi(name, created, &json!({}))
    }

    fn on_port(port: i64) -> Arc<RestApi> {
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
        #[case] restapis: Vec<Arc<RestApi>>,
        #[case] expected: Option<&str>,
    ) {
        let key = ClusterKey { namespace: "ns".to_owned(), controller: "slurm".to_owned() };
        assert_eq!(endpoint(&key, &restapis).as_deref(), expected);
    }
}
