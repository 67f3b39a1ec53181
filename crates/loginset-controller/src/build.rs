//! Builds the children of a LoginSet. Pure.

mod config;
mod deployment;
mod host_keys;
mod service;

pub use config::{AUTHORIZED_KEYS, SSHD_CONFIG, build_config};
pub use deployment::{Hashes, build_deployment};
pub use host_keys::build_host_keys;
pub use service::build_service;
