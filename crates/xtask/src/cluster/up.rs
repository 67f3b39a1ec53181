//! Starts a cluster, or sees that it is there and healthy.

use super::instance::Cluster;
use super::layout::Layout;
use super::profile::{Profile, TOOLS};
use super::sandbox::Sandbox;
use super::{configs, down, lock, pki};
use crate::packages;
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use std::fs;

/// Starts a cluster unless it is there and healthy. What an earlier command left half-done is removed before.
pub fn up(layout: &Layout, profile: Profile) -> Result<()> {
    packages::ensure(profile.packages())?;
    for tool in TOOLS {
        tool.file()?;
    }
    for component in profile.waves().iter().copied().flatten() {
        component.program()?;
    }
    let _lock = lock::lock(&layout.dir)?;
    if is_healthy(layout, profile)? {
        println!("cluster {} is up and healthy: nothing to do", layout.name);
    } else {
        step(format!("start cluster {}", layout.name), || start(layout, profile))?;
    }
    println!("kubeconfig: {}", layout.admin_kubeconfig().display());
    println!("commands: cargo xtask cluster exec --name {} -- kubectl get nodes", layout.name);
    Ok(())
}

fn is_healthy(layout: &Layout, profile: Profile) -> Result<bool> {
    let Some(cluster) = Cluster::find(layout)? else { return Ok(false) };
    ensure!(
        cluster.profile == profile,
        "cluster {0} has the profile {1}: end it with `cargo xtask cluster down --name {0}` first",
        layout.name,
        cluster.profile
    );
    let health = cluster.check();
    if let Err(problem) = &health {
        eprintln!("cluster {} is not healthy and starts anew: {problem:#}", layout.name);
    }
    Ok(health.is_ok())
}

fn start(layout: &Layout, profile: Profile) -> Result<()> {
    down::clear(layout)?;
    for directory in [layout.pki(""), layout.kubeconfig(""), layout.config(""), layout.log("")] {
        fs::create_dir(&directory).with_context(|| format!("creating {}", directory.display()))?;
    }
    pki::write(layout)?;
    configs::write(layout)?;
    let sandbox = Sandbox::start(layout)?;
    let cluster = Cluster { layout, profile, sandbox };
    for wave in profile.waves() {
        cluster.start(wave)?;
    }
    fs::write(layout.completed(), profile.to_string()).context("noting that the cluster is complete")
}
