//! The preStop hook of a worker: it sets its Slurm node down, unless the node is drained or an administrator set it down.

use k8s_openapi::api::core::v1::{ExecAction, LifecycleHandler};

const SCRIPT: &str = include_str!("scripts/pre-stop.sh");

/// The hook that the kubelet runs before it sends SIGTERM to slurmd.
pub fn pre_stop() -> LifecycleHandler {
    let command = ["/usr/bin/sh", "-c", SCRIPT].map(str::to_owned).to_vec();
    LifecycleHandler { exec: Some(ExecAction { command: Some(command) }), ..LifecycleHandler::default() }
}

#[cfg(test)]
mod tests;
