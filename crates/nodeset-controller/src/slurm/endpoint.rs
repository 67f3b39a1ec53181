//! Which slurmrestd to ask for a cluster. Pure.

use super::ClusterKey;
use kube::ResourceExt;
use slinky_api::names::{SLURMRESTD_PORT, restapi_workload, service_host};
use slinky_api::v1beta1::RestApi;
use std::sync::Arc;

/// The URL of the slurmrestd to ask: that of the oldest RestApi of the cluster, before all of those that stay.
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
    #[case::the_oldest(vec![plain("a", 2), plain("b", 1)], Some("http://b-restapi.ns:6820"))]
    #[case::of_one_age_the_first_name(vec![plain("b", 1), plain("a", 1)], Some("http://a-restapi.ns:6820"))]
    #[case::one_that_stays(vec![terminating("a", 0), plain("b", 1)], Some("http://b-restapi.ns:6820"))]
    #[case::one_that_goes(vec![terminating("a", 0)], Some("http://a-restapi.ns:6820"))]
    #[case::other_port(vec![on_port(8080)], Some("http://a-restapi.ns:8080"))]
    #[case::default_port(vec![on_port(0)], Some("http://a-restapi.ns:6820"))]
    #[case::other_namespace(vec![restapi("a", 0, &json!({ "/metadata/namespace": "other" }))], None)]
    #[case::other_controller(vec![restapi("a", 0, &json!({ "/spec/controllerRef/name": "other" }))], None)]
    fn the_oldest_restapi_that_stays_is_asked(
        #[case] restapis: Vec<Arc<RestApi>>,
        #[case] expected: Option<&str>,
    ) {
        let key = ClusterKey { namespace: "ns".to_owned(), controller: "slurm".to_owned() };
        assert_eq!(endpoint(&key, &restapis).as_deref(), expected);
    }
}
