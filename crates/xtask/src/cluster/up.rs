//! Starts a cluster, unless it is running and healthy.

use super::instance::Cluster;
use super::layout::Layout;
use super::machine::check_machine;
use super::profile::{Profile, TOOLS};
use super::sandbox::Sandbox;
use super::{cgroups, configs, down, lock, manifests, pki};
use crate::progress::step;
use crate::{images, packages};
use anyhow::{Context, Result, ensure};
use std::fs;

/// Starts a cluster, unless it is running and healthy. An incomplete or unhealthy cluster is removed first.
pub fn up(layout: &Layout, profile: Profile, nodes: usize) -> Result<()> {
    prepare(profile)?;
    let _lock = lock::lock(&layout.dir)?;
    let cluster = match find_healthy(layout, profile)? {
        Some(cluster) => {
            println!("cluster {} is up and healthy", layout.name);
            cluster
        }
        None => step(format!("start cluster {}", layout.name), || start(layout, profile))?,
    };
    match profile {
        Profile::Node => cluster.import_images(&images::archives()?)?,
        Profile::Scale => cluster.simulate_nodes(nodes)?,
        Profile::ControlPlane => {}
    }
    println!("kubeconfig: {}", layout.kubeconfig("admin").display());
    println!("commands: cargo xtask cluster exec --name {} -- kubectl get nodes", layout.name);
    Ok(())
}

/// Installs packages and builds programs and images, before the cluster is created.
fn prepare(profile: Profile) -> Result<()> {
    check_machine(profile)?;
    packages::ensure(&profile.requirements())?;
    for tool in TOOLS {
        tool.file()?;
    }
    for component in profile.components() {
        component.program()?;
    }
    if profile == Profile::Node {
        images::archives()?;
    }
    Ok(())
}

fn find_healthy(layout: &Layout, profile: Profile) -> Result<Option<Cluster<'_>>> {
    let Some(cluster) = Cluster::find(layout)? else { return Ok(None) };
    ensure!(
        cluster.profile == profile,
        "cluster {0} has the profile {1}: remove it with `cargo xtask cluster down --name {0}` first",
        layout.name,
        cluster.profile
    );
    match cluster.check() {
        Ok(()) => Ok(Some(cluster)),
        Err(problem) => {
            eprintln!("cluster {} is not healthy and is recreated: {problem:#}", layout.name);
            Ok(None)
        }
    }
}

fn start(layout: &Layout, profile: Profile) -> Result<Cluster<'_>> {
    down::clear(layout)?;
    write_files(layout)?;
    if profile == Profile::Node {
        cgroups::create(&layout.cgroup())?;
    }
    let cluster = Cluster { layout, profile, sandbox: Sandbox::start(layout)? };
    let (first, rest) = profile.waves().split_first().context("a profile without components")?;
    cluster.start(first)?;
    cluster.create("objects.json", &manifests::all())?;
    rest.iter().try_for_each(|wave| cluster.start(wave))?;
    fs::write(layout.completed(), profile.to_string()).context("recording that the cluster is complete")?;
    Ok(cluster)
}

/// Writes the credentials and configurations of the components.
pub fn write_files(layout: &Layout) -> Result<()> {
    pki::write(layout)?;
    configs::write(layout)
}
