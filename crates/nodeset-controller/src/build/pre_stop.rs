//! What a worker does before its slurmd ends: it takes its Slurm node out of service, unless somebody has already.

use k8s_openapi::api::core::v1::{ExecAction, LifecycleHandler};

const SCRIPT: &str = include_str!("scripts/pre-stop.sh");

/// The hook that runs before slurmd is told to end.
pub fn pre_stop() -> LifecycleHandler {
    let command = ["/usr/bin/sh", "-c", SCRIPT].map(str::to_owned).to_vec();
    LifecycleHandler { exec: Some(ExecAction { command: Some(command) }), ..LifecycleHandler::default() }
}

#[cfg(test)]
mod tests;
