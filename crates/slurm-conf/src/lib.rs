//! Slurm configuration files and hostlists, rendered and parsed by pure functions.
//!
//! Every file is a pure function of a typed input, and user text cannot leave its configuration line
//! ([`ConfValue`], [`ConfName`], [`ConfLine`]). No I/O, no Kubernetes types.
//!
//! The bytes, headers included, must not change: pods of existing clusters carry their hash. We deviate from those
//! clusters on purpose only where their files could not have worked, or where the cluster needs it:
//!
//! - options that the operator requires are merged with the user's without changing the user's letter case, and
//!   also when the user quoted the value or wrote several options on one line ([`SlurmConf`], [`SlurmdbdConf`]);
//! - `MaxNodeCount` grows with the cluster ([`SlurmConf::cluster_size`]);
//! - the accounting address is an input, so that an external slurmdbd is reached;
//! - a partition's options are one logical line; a line break in them is rejected instead of rendered;
//! - an item of a worker's extra configuration that would end its shell quoting is rejected ([`ExtraItems`]).

mod cgroup;
pub mod check;
mod cluster_name;
mod equivalence;
pub mod files;
pub mod hostlist;
mod merged;
mod slurm;
mod slurmd;
mod slurmdbd;
mod ssh;
mod text;
mod value;
mod writer;

pub use cgroup::render_cgroup_conf;
pub use cluster_name::{ClusterNameError, check_new_cluster_name};
pub use equivalence::is_equivalent;
pub use slurm::{
    AccountingAddress, ControllerHost, ExternalSlurmConf, NodeSet, SlurmConf, cluster_name_in_file,
    node_sets_in_file, partition_names,
};
pub use slurmd::{ExtraItemError, ExtraItems, slurmd_args};
pub use slurmdbd::{SlurmdbdConf, Storage};
pub use ssh::{render_authorized_keys, render_login_sshd_config, render_worker_sshd_config};
pub use value::{ConfLine, ConfName, ConfValue, Problem, Secret, ValueError};

/// Ports of the daemons, independent of the ports of their Services.
const SLURMCTLD_PORT: u16 = 6817;
const SLURMD_PORT: u16 = 6818;
const SLURMDBD_PORT: u16 = 6819;
