//! Ports of daemons.

use k8s_openapi::api::core::v1::ContainerPort;

/// A TCP port of a container, to which Services refer by its name.
pub fn tcp_port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}
