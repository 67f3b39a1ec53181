//! A real local Kubernetes: etcd, the control plane and, by profile, a node or simulated nodes.
//!
//! A cluster lives in namespaces of its own below one process (`sandbox`) and in one directory (`layout`), so that
//! any number run side by side and ending that process and removing that directory leaves nothing behind. Nothing
//! here may reach outside the sandbox, except the builds, which use Go's and Debian's package servers.

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
mod manifests;
mod pki;
mod processes;
mod profile;
mod sandbox;
mod up;
mod volumes;
mod wait;

use anyhow::{Result, ensure};
use instance::Cluster;
use layout::Layout;
pub use layout::Name;
pub use local::{LocalCluster, succeed};
pub use processes::end_programs;
pub use profile::Profile;
pub use wait::until;

/// What can be done with a cluster.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start a cluster, or do nothing when it runs and is healthy.
    Up {
        /// Which cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
        /// What the cluster is for.
        #[arg(long, value_enum, default_value_t = Profile::Node)]
        profile: Profile,
        /// How many simulated nodes there shall be at least; for the profile `scale`.
        #[arg(long, default_value_t = 10)]
        nodes: usize,
    },
    /// Run a command that can reach the cluster: its addresses, its DNS, KUBECONFIG, kubectl and helm.
    Exec {
        /// Which cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Stop a cluster and remove everything it left.
    Down {
        /// Which cluster.
        #[arg(long, default_value = "dev")]
        name: Name,
    },
    /// Name the clusters of this machine and what became of them.
    List,
}

/// Runs one cluster command.
pub fn run(command: &Command) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a local cluster needs root: it makes namespaces and mounts"
    );
    match command {
        Command::Up { name, profile, nodes } => up::up(&Layout::of(name)?, *profile, *nodes),
        Command::Exec { name, command } => exec::exec(&Layout::of(name)?, command),
        Command::Down { name } => down::down(&Layout::of(name)?),
        Command::List => list(),
    }
}

fn list() -> Result<()> {
    for layout in Layout::existing()? {
        match Cluster::find(&layout)? {
            Some(cluster) => println!("{} {}", layout.name, cluster.profile),
            None => println!("{} is not complete: `up` starts it anew, `down` removes it", layout.name),
        }
    }
    Ok(())
}
