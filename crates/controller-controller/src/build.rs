//! Builds the children of a Controller. No I/O.

mod config;
mod config_check;
mod configuration;
mod node_sets;
mod reconfiguration;
mod service_monitor;
mod services;
mod stateful_set;

pub use config::{ConfigError, Files, Rendered, SLURM_CONF, Sources, build_config, node_count, render};
pub use config_check::{CHECK_APP, build_candidate, build_check, check_name};
pub use configuration::{Configuration, Contents, LARGEST, without_keys};
pub use node_sets::{RefusedLines, RefusedNodeSets};
pub use reconfiguration::Reconfiguration;
pub use service_monitor::{ServiceMonitor, build_service_monitor, wants_service_monitor};
pub use services::{build_internal_service, build_service};
pub use stateful_set::{Hashes, build_stateful_set, mounts_user_files};
