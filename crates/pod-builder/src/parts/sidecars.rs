//! Init containers and sidecars of daemons: log, configuration, keys.
//!
//! Their scripts are part of the pod template, so a changed script would restart pods; [`same_template`] ignores such a
//! change. The first line of each script identifies it as one of this operator.
//!
//! [`same_template`]: crate::same_template

use super::volumes::{AUTH_SOCKET, LOG_FILES, SLURM_CONFIG, SLURM_ETC, mount, read_only};
use k8s_openapi::api::core::v1::{Container, EnvVar};
use slinky_api::names::SLURM_USER;

/// Names of the containers whose command ends in a script of this operator.
pub(crate) const SCRIPT_CONTAINERS: &[&str] = &["initconf", "logfile", "reconfigure"];
/// The prefix of each script of this operator.
pub(crate) const SCRIPT_MARK: &str = "# Script of the Slurm operator: ";

const INITCONF: &str = include_str!("../../scripts/initconf.sh");
const LOGFILE: &str = include_str!("../../scripts/logfile.sh");
const RECONFIGURE: &str = include_str!("../../scripts/reconfigure.sh");

const SHELL: &[&str] = &["sh", "-c"];

/// Copies configuration and keys of a login pod to a volume where its daemons may read them, before they start.
pub fn initconf() -> Container {
    Container {
        name: "initconf".to_owned(),
        command: Some(command(SHELL, INITCONF)),
        env: Some(vec![env("SLURM_USER", SLURM_USER)]),
        volume_mounts: Some(vec![
            mount(SLURM_ETC, "/mnt/etc/slurm"),
            read_only(mount(SLURM_CONFIG, "/mnt/slurm")),
        ]),
        ..Container::default()
    }
}

/// Prints the log of a daemon that writes to `path`.
pub fn logfile(path: &str) -> Container {
    Container {
        name: "logfile".to_owned(),
        command: Some(command(SHELL, LOGFILE)),
        env: Some(vec![env("SOCKET", path)]),
        restart_policy: Some("Always".to_owned()),
        volume_mounts: Some(vec![mount(LOG_FILES, "/var/log/slurm")]),
        ..Container::default()
    }
}

/// Runs `scontrol reconfigure` when the configuration files change.
pub fn reconfigure() -> Container {
    Container {
        name: "reconfigure".to_owned(),
        command: Some(command(&["tini", "-g", "--", "bash", "-c"], RECONFIGURE)),
        restart_policy: Some("Always".to_owned()),
        volume_mounts: Some(vec![
            read_only(mount(SLURM_ETC, "/etc/slurm")),
            read_only(mount(AUTH_SOCKET, "/run/slurmctld")),
        ]),
        ..Container::default()
    }
}

fn command(interpreter: &[&str], script: &str) -> Vec<String> {
    interpreter.iter().chain([&script]).map(|&word| word.to_owned()).collect()
}

/// An environment variable of a container.
pub fn env(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}
