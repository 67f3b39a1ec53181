//! Slurm configuration files and hostlists, rendered and parsed by pure functions.
//!
//! Every file is a function of a typed input: the same input gives the same bytes, and text of the user cannot
//! leave the line it was meant for ([`ConfValue`], [`ConfName`], [`ConfLine`]). No input or output happens here,
//! and no Kubernetes type is known.
//!
//! The bytes are those that the pods of existing clusters carry a hash of, headers included. Where we differ from
//! them on purpose, it is only where they could not have worked, or where the cluster asks for it:
//!
//! - options that the operator requires are merged with the user's without changing the user's letter case, and
//!   also when the user quoted the value or wrote several options on one line ([`SlurmConf`], [`SlurmdbdConf`]);
//! - `MaxNodeCount` grows with the cluster ([`SlurmConf::cluster_size`]);
//! - the accounting address is whatever the caller says, so that an external slurmdbd is reached;
//! - a partition's options are one logical line; a line break in them is refused instead of rendered;
//! - an item of a worker's extra configuration that would end its shell quoting is refused ([`ExtraItems`]).

mod cgroup;
pub mod check;
pub mod hostlist;
mod meaning;
mod merged;
mod slurm;
mod slurmd;
mod slurmdbd;
mod ssh;
mod text;
mod value;
mod writer;

pub use cgroup::render_cgroup_conf;
pub use meaning::is_equivalent;
pub use slurm::{AccountingAddress, ControllerHost, ExternalSlurmConf, NodeSet, SlurmConf, partition_names};
pub use slurmd::{ExtraItemError, ExtraItems, slurmd_args};
pub use slurmdbd::{SlurmdbdConf, Storage};
pub use ssh::{render_authorized_keys, render_login_sshd_config, render_worker_sshd_config};
pub use value::{ConfLine, ConfName, ConfValue, Problem, Secret, ValueError};

/// Where the daemons listen, whatever ports their Services have.
const SLURMCTLD_PORT: u16 = 6817;
const SLURMD_PORT: u16 = 6818;
const SLURMDBD_PORT: u16 = 6819;
