//! Runs commands inside a cluster's network.

use super::golang::Program;
use super::layout::Layout;
use super::mounts;
use super::processes::MARKER;
use super::profile::TOOLS;
use super::sandbox::Sandbox;
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The environment variable with the cluster's directory, which has the audit log.
const DIRECTORY: &str = "SLURM_OPERATOR_CLUSTER_DIR";

/// Replaces this process by a command with the cluster's network, DNS and credentials; returns only on failure.
///
/// No parent process remains, so standard streams, signals and the exit code are the command's own. It sees the
/// machine's file system, except for the resolver configuration.
pub fn exec(layout: &Layout, command: &[OsString]) -> Result<()> {
    let Some(sandbox) = Sandbox::find(layout)? else {
        bail!("cluster {0} is not running: start it with `cargo xtask cluster up --name {0}`", layout.name);
    };
    let error = attach(layout, &sandbox)?
        .args(["unshare", "--mount", "--", "sh", "-euc", mounts::USE_RESOLVER])
        .arg(layout.resolv_conf())
        .args(command)
        .exec();
    Err(error).context("running nsenter")
}

/// The prefix of a command with the cluster's network and credentials, and without the machine's HTTP proxies.
pub fn attach(layout: &Layout, sandbox: &Sandbox) -> Result<Command> {
    let mut path = TOOLS.iter().map(Program::directory).collect::<Result<Vec<_>>>()?;
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", sandbox.network().display()))
        .arg("--")
        .env("PATH", env::join_paths(path)?)
        .env("KUBECONFIG", layout.kubeconfig("admin"))
        // All clusters have the same address, so the discovery cache of one is wrong for another.
        .env("KUBECACHEDIR", layout.dir.join("client-cache"))
        .env(MARKER, layout.name.to_string())
        .env(DIRECTORY, &layout.dir);
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy);
    }
    Ok(command)
}
