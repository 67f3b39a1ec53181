//! Builds the children of an Accounting. Pure.

mod config;
mod service;
mod stateful_set;

pub use config::{ConfigError, build_config};
pub use service::build_service;
pub use stateful_set::{Keys, build_stateful_set};

/// The configuration file, and its key in the Secret.
const SLURMDBD_CONF: &str = "slurmdbd.conf";
