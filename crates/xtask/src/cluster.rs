//! Local Kubernetes clusters: etcd, the control plane and, depending on the profile, a node or simulated nodes.
//!
//! A cluster has Linux namespaces of its own, held by one process (`sandbox`), and one directory (`layout`). So any
//! number of clusters run in parallel, and ending that process and removing that directory leaves nothing behind.
//! Nothing here may reach outside the sandbox, except the builds, which use Go's and Debian's package servers.

mod cgroups;
mod components;
mod configs;
mod down;
mod exec;
mod golang;
mod instance;
mod layout;
mod local;
mod lock;
mod machine;
mod manifests;
mod mounts;
mod pki;
mod processes;
mod profile;
mod sandbox;
mod up;
mod volumes;
mod wait;

use anyhow::{Context, Result};
pub use golang::Program;
use instance::Cluster;
use layout::Layout;
pub use layout::Name;
pub use local::LocalCluster;
pub use machine::check_machine;
pub use profile::Profile;
use std::path::PathBuf;
pub use wait::until;

/// The cluster commands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start a cluster, unless it is running and healthy.
    Up {
        /// Name of the cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
        /// Purpose of the cluster.
        #[arg(long, value_enum, default_value_t = Profile::Node)]
        profile: Profile,
        /// Minimum number of simulated nodes, for the profile `scale`.
        #[arg(long, default_value_t = 10)]
        nodes: usize,
    },
    /// Run a command with the cluster's network, DNS and KUBECONFIG, and with kubectl and helm.
    Exec {
        /// Name of the cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Import image archives into the container runtime of the node, unless it has them.
    Import {
        /// Name of the cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
        /// OCI archives.
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Stop a cluster and remove all its files.
    Down {
        /// Name of the cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
    },
    /// List the clusters of this machine.
    List,
}

/// Runs one cluster command.
pub fn run(command: &Command) -> Result<()> {
    machine::ensure_root()?;
    match command {
        Command::Up { name, profile, nodes } => up::up(&Layout::of(name)?, *profile, *nodes),
        Command::Exec { name, command } => exec::exec(&Layout::of(name)?, command),
        Command::Import { name, archives } => import(&Layout::of(name)?, archives),
        Command::Down { name } => down::down(&Layout::of(name)?),
        Command::List => list(),
    }
}

fn import(layout: &Layout, archives: &[PathBuf]) -> Result<()> {
    let cluster = Cluster::find(layout)?.filter(|cluster| cluster.profile == Profile::Node);
    let advice = format!("start it with `cargo xtask cluster up --name {}`", layout.name);
    let cluster =
        cluster.with_context(|| format!("cluster {} with a node is not running: {advice}", layout.name))?;
    let _lock = lock::lock(&layout.dir)?;
    cluster.import_images(archives)
}

fn list() -> Result<()> {
    for layout in Layout::existing()? {
        match Cluster::find(&layout)? {
            Some(cluster) => println!("{} {}", layout.name, cluster.profile),
            None => println!("{} is incomplete: `up` recreates it, `down` removes it", layout.name),
        }
    }
    Ok(())
}
