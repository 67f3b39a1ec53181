//! Parts of pods that several kinds share.

mod ports;
mod probes;
mod sidecars;
mod users;
mod volumes;

pub use ports::tcp_port;
pub use probes::{exec_probe, http_probe, tcp_probe, with_one_minute_threshold};
pub(crate) use sidecars::{SCRIPT_CONTAINERS, SCRIPT_MARK};
pub use sidecars::{env, initconf, logfile, reconfigure};
pub use users::{container_user, pod_user};
pub use volumes::{
    AUTH_SOCKET, LOG_FILES, PRIVATE, SLURM_CONFIG, SLURM_ETC, config_map_items, config_map_source, empty_dir,
    file_mount, item, memory_dir, mount, projected, read_only, secret_items,
};
