//! Probes of daemons.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Requests `path` on a named port.
pub fn http_probe(path: &str, port: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(port.to_owned()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

/// Connects to a port.
pub fn tcp_probe(port: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction { port: IntOrString::Int(port), ..TCPSocketAction::default() }),
        ..Probe::default()
    }
}

/// Runs a command in the container.
pub fn exec_probe(command: &[&str]) -> Probe {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    Probe { exec: Some(ExecAction { command: Some(command) }), ..Probe::default() }
}

/// Restarts the container after one minute of failures.
pub fn with_one_minute_threshold(probe: Probe) -> Probe {
    Probe { failure_threshold: Some(6), period_seconds: Some(10), ..probe }
}
