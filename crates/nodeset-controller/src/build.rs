//! Builds the Kubernetes objects of a NodeSet. No I/O.

mod claims;
mod error;
mod name;
mod pdb;
mod pod;
mod pod_template;
mod pre_stop;
mod revision;
mod service;
mod shared;
mod slurmd_container;
mod ssh_config;

pub use claims::{build_claims, claim_templates};
pub use error::BuildError;
pub use pdb::build_worker_pdb;
pub use pod::{build_daemon_pod, build_numbered_pod};
pub use pod_template::{Hashes, WorkerTemplate, build_template};
pub use revision::{build_revision, build_revision_data, revision_bytes, revision_hash, revision_name};
pub use service::build_worker_service;
pub use ssh_config::{build_ssh_config, sshd_config_hash};
