//! The Services of slurmctld: one that routes clients to the active daemon, and a headless one that gives each daemon a
//! name.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use operator_runtime::RawObject;
use pod_builder::{
    BuildError, ComponentPort, ComponentService, build_component_service, build_headless_spec,
    component_metadata,
};
use serde_json::{Value, json};
use slinky_api::labels::{App, CONTROLLER_ACTIVE, TRUE, selector_labels};
use slinky_api::names::{SLURMCTLD_PORT, controller as names};
use slinky_api::v1beta1::Controller;

const PORT: ComponentPort<'_> = ComponentPort { name: Controller::NAME, default: SLURMCTLD_PORT };

/// The Service `<name>-controller` for clients.
pub fn build_service(controller: &Controller) -> Result<RawObject<Service>, BuildError> {
    let mut selector = selector_labels(controller);
    selector.insert(CONTROLLER_ACTIVE.to_owned(), TRUE.to_owned());
    let service = ComponentService {
        name: &names::workload(&controller.name_any()),
        default_port: SLURMCTLD_PORT,
        selector,
        template: controller.spec.service.as_ref(),
        inherits_metadata: true,
    };
    let mut service = build_component_service(controller, &service)?;
    add_daemon_port(&mut service);
    Ok(RawObject::new(service)?)
}

/// Daemons and clients use one port for all addresses of slurmctld. With another `service.port` the Service has it, too.
fn add_daemon_port(service: &mut Value) {
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    let Some(ports) = ports.filter(|ports| ports.iter().all(|port| port["port"] != SLURMCTLD_PORT)) else {
        return;
    };
    ports.push(json!({
        "name": format!("{}-{SLURMCTLD_PORT}", Controller::NAME),
        "port": SLURMCTLD_PORT,
        "protocol": "TCP",
        "targetPort": Controller::NAME,
    }));
}

/// The headless Service `<name>-controller-internal`, by which daemons find each other, active or not.
pub fn build_internal_service(controller: &Controller) -> Result<RawObject<Service>, BuildError> {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": component_metadata(controller, &names::internal_service(&controller.name_any()), None),
        "spec": build_headless_spec(PORT, &selector_labels(controller)),
    });
    Ok(RawObject::new(service)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::controller;

    #[test]
    fn service() {
        let controller = controller(&json!({ "service": {
            "metadata": { "labels": { "tier": "control" }, "annotations": { "a": "1" } },
            "spec": { "type": "LoadBalancer", "externalIPs": ["10.0.0.1"], "selector": { "app": "mine" } },
            "port": 7817,
            "nodePort": 30817,
        } }));
        insta::assert_yaml_snapshot!(build_service(&controller).unwrap());
    }

    #[test]
    fn internal_service() {
        let controller = controller(&json!({ "service": { "port": 7817 } }));
        insta::assert_yaml_snapshot!(build_internal_service(&controller).unwrap());
    }

    #[test]
    fn service_has_the_port_in_the_address_of_daemons() {
        for port in [json!(null), json!(7817), json!(6817)] {
            let controller = controller(&json!({ "service": { "port": port } }));
            let server = controller.config_server().unwrap();
            let used: i32 = server.rsplit_once(':').unwrap().1.parse().unwrap();
            let service = build_service(&controller).unwrap();
            let ports = service.spec.as_ref().unwrap().ports.clone().unwrap();
            assert_eq!(ports.iter().filter(|port| port.port == used).count(), 1, "{ports:?}");
        }
    }

    #[test]
    fn user_port_cannot_replace_the_port_of_slurmctld() {
        let ports = json!([{ "name": "mine", "port": SLURMCTLD_PORT }]);
        let controller = controller(&json!({ "service": { "spec": { "ports": ports } } }));
        let error = build_service(&controller).unwrap_err().to_string();
        assert!(error.contains("port number '6817' is already taken"), "{error}");
    }
}
