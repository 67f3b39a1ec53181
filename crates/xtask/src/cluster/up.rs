//! Starts a cluster, or sees that it is there and healthy.

use super::instance::Cluster;
use super::layout::Layout;
use super::profile::{Profile, TOOLS};
use super::sandbox::Sandbox;
use super::{cgroups, configs, down, lock, manifests, pki};
use crate::progress::step;
use crate::{images, packages};
use anyhow::{Context, Result, ensure};
use std::fs;

/// Starts a cluster unless it is there and healthy. What an earlier command left half-done is removed before.
pub fn up(layout: &Layout, profile: Profile, nodes: usize) -> Result<()> {
    prepare(profile)?;
    let _lock = lock::lock(&layout.dir)?;
    let cluster = match healthy(layout, profile)? {
        Some(cluster) => {
            println!("cluster {} is up and healthy", layout.name);
            cluster
        }
        None => step(format!("start cluster {}", layout.name), || start(layout, profile))?,
    };
    match profile {
        Profile::Node => cluster.import_images()?,
        Profile::Scale => cluster.simulate_nodes(nodes)?,
        Profile::ControlPlane => {}
    }
    println!("kubeconfig: {}", layout.admin_kubeconfig().display());
    println!("commands: cargo xtask cluster exec --name {} -- kubectl get nodes", layout.name);
    Ok(())
}

/// Installs and builds what is missing, before anything of the cluster exists.
fn prepare(profile: Profile) -> Result<()> {
    packages::ensure(&profile.packages())?;
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

fn healthy(layout: &Layout, profile: Profile) -> Result<Option<Cluster<'_>>> {
    let Some(cluster) = Cluster::find(layout)? else { return Ok(None) };
    ensure!(
        cluster.profile == profile,
        "cluster {0} has the profile {1}: end it with `cargo xtask cluster down --name {0}` first",
        layout.name,
        cluster.profile
    );
    match cluster.check() {
        Ok(()) => Ok(Some(cluster)),
        Err(problem) => {
            eprintln!("cluster {} is not healthy and starts anew: {problem:#}", layout.name);
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
    fs::write(layout.completed(), profile.to_string()).context("noting that the cluster is complete")?;
    Ok(cluster)
}

/// Writes what the components read: credentials and configurations.
pub fn write_files(layout: &Layout) -> Result<()> {
    for directory in [layout.pki(""), layout.kubeconfig(""), layout.config(""), layout.log("")] {
        fs::create_dir(&directory).with_context(|| format!("creating {}", directory.display()))?;
    }
    pki::write(layout)?;
    configs::write(layout)
}
