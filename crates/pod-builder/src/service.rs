//! The spec of a Service: the user's spec, with the component's port and selector.

use crate::container::extend_list;
use crate::error::BuildError;
use crate::typed::read;
use k8s_openapi::api::core::v1::ServiceSpec;
use serde_json::{Value, json};
use slinky_api::labels::Labels;
use slinky_api::v1beta1::ServiceTemplate;
use std::collections::BTreeSet;

/// The port of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComponentPort<'a> {
    /// Its name, which is also that of the target port.
    pub name: &'a str,
    /// Its number, unless the user sets another.
    pub default: i32,
}

/// Builds the spec of a component's Service.
///
/// The component's port is appended to the user's, and its selector wins. `externalIPs` is dropped: with it a user
/// could intercept traffic of others (CVE-2020-8554).
pub fn build_service_spec(
    template: &ServiceTemplate,
    port: ComponentPort<'_>,
    selector: &Labels,
) -> Result<Value, BuildError> {
    let user = template.spec.as_value();
    let typed: ServiceSpec = if user.is_null() {
        ServiceSpec::default()
    } else {
        read("service.spec", user).map_err(BuildError::Service)?
    };
    reject_duplicates(
        typed
            .ports
            .iter()
            .flatten()
            .map(|p| (p.name.as_deref(), i64::from(p.port)))
            .chain([(Some(port.name), number(template.port, port.default))]),
    )?;

    let mut spec = user.as_object().cloned().unwrap_or_default();
    spec.retain(|key, value| key != "externalIPs" && !value.is_null());
    let mut labels = typed.selector.unwrap_or_default();
    labels.extend(selector.clone());
    spec.insert("selector".to_owned(), json!(labels));
    let mut spec = Value::Object(spec);
    extend_list(&mut spec, &["ports"], [component_port(template, port)]);
    Ok(spec)
}

/// Builds the spec of a headless Service: each pod has a DNS name, also before it is ready.
pub fn build_headless_spec(port: ComponentPort<'_>, selector: &Labels) -> Value {
    json!({
        "clusterIP": "None",
        "publishNotReadyAddresses": true,
        "ports": [component_port(&ServiceTemplate::default(), port)],
        "selector": selector,
    })
}

fn component_port(template: &ServiceTemplate, port: ComponentPort<'_>) -> Value {
    let mut entry = json!({
        "name": port.name,
        "port": number(template.port, port.default),
        "protocol": "TCP",
        "targetPort": port.name,
    });
    if let Some(node_port) = template.node_port.filter(|port| *port != 0) {
        entry["nodePort"] = json!(node_port);
    }
    entry
}

/// Client libraries write zero for no port.
fn number(chosen: Option<i64>, default: i32) -> i64 {
    chosen.filter(|port| *port != 0).unwrap_or_else(|| default.into())
}

fn reject_duplicates<'a>(ports: impl Iterator<Item = (Option<&'a str>, i64)>) -> Result<(), BuildError> {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (name, number) in ports {
        let name = name.unwrap_or_default();
        if !names.insert(name) {
            return Err(BuildError::PortName(name.to_owned()));
        }
        if !numbers.insert(number) {
            return Err(BuildError::PortNumber(number));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use slinky_api::Raw;

    const SLURMCTLD: ComponentPort<'_> = ComponentPort { name: "slurmctld", default: 6817 };

    fn template(spec: Value, port: i64, node_port: i64) -> ServiceTemplate {
        ServiceTemplate { metadata: None, spec: Raw::new(spec), port: Some(port), node_port: Some(node_port) }
    }

    fn selector() -> Labels {
        Labels::from([("app".to_owned(), "slurmctld".to_owned())])
    }

    #[test]
    fn empty_user_spec_results_in_one_port() {
        let spec = build_service_spec(&template(Value::Null, 0, 0), SLURMCTLD, &selector()).unwrap();
        assert_eq!(
            spec,
            json!({
                "ports": [{ "name": "slurmctld", "port": 6817, "protocol": "TCP", "targetPort": "slurmctld" }],
                "selector": { "app": "slurmctld" },
            })
        );
    }

    #[test]
    fn user_spec_is_kept_except_selector_keys_and_external_ips() {
        let user = json!({
            "type": "NodePort", "clusterIP": null, "externalIPs": ["192.0.2.1"], "futureField": 1,
            "ports": [{ "name": "more", "port": 9, "targetPort": 9 }],
            "selector": { "app": "mine", "zone": "a" },
        });
        let spec = build_service_spec(&template(user, 7000, 31817), SLURMCTLD, &selector()).unwrap();
        assert_eq!(
            spec,
            json!({
                "type": "NodePort", "futureField": 1,
                "ports": [
                    { "name": "more", "port": 9, "targetPort": 9 },
                    { "name": "slurmctld", "port": 7000, "protocol": "TCP", "targetPort": "slurmctld", "nodePort": 31817 },
                ],
                "selector": { "app": "slurmctld", "zone": "a" },
            })
        );
    }

    #[rstest]
    #[case(json!({ "ports": [{ "name": "slurmctld", "port": 9 }] }), "error validating Ports: port name 'slurmctld' is already taken by another port")]
    #[case(json!({ "ports": [{ "name": "x", "port": 6817 }] }), "error validating Ports: port number '6817' is already taken by another port")]
    #[case(json!({ "ports": [{ "name": "x", "port": 1 }, { "name": "y", "port": 1, "protocol": "UDP" }] }), "error validating Ports: port number '1' is already taken by another port")]
    fn duplicate_ports_are_rejected(#[case] user: Value, #[case] message: &str) {
        let error = build_service_spec(&template(user, 0, 0), SLURMCTLD, &selector()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn error_names_the_mistyped_field() {
        let user = json!({ "ports": [{ "port": "http" }] });
        let Err(BuildError::Service(error)) =
            build_service_spec(&template(user, 0, 0), SLURMCTLD, &selector())
        else {
            panic!("must be rejected")
        };
        assert_eq!(error.path, "service.spec.ports[0].port");
    }

    #[test]
    fn headless_service_publishes_pods_that_are_not_ready() {
        let spec = build_headless_spec(SLURMCTLD, &selector());
        assert_eq!(spec["clusterIP"], "None");
        assert_eq!(spec["publishNotReadyAddresses"], true);
        assert_eq!(spec["ports"][0]["port"], 6817);
    }
}
