//! Volumes and mounts that several kinds share.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, EmptyDirVolumeSource, KeyToPath, ProjectedVolumeSource, SecretProjection, Volume,
    VolumeMount, VolumeProjection,
};

/// Mode of files that only their owner may read.
pub const PRIVATE: i32 = 0o600;

/// Slurm's configuration directory.
pub const SLURM_ETC: &str = "slurm-etc";
/// The files that [`initconf`](super::initconf) copies to the configuration directory.
pub const SLURM_CONFIG: &str = "slurm-config";
/// The FIFO from which [`logfile`](super::logfile) reads a daemon's log.
pub const LOG_FILES: &str = "slurm-logfile";
/// The auth socket by which containers of its own pod connect to slurmctld.
pub const AUTH_SOCKET: &str = "slurm-authsocket";

/// A directory in memory.
pub fn memory_dir(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// A directory with the lifetime of the pod.
pub fn empty_dir(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

/// A directory with files from several sources; for equal paths the last source wins.
pub fn projected(name: &str, mode: i32, sources: Vec<VolumeProjection>) -> Volume {
    Volume {
        name: name.to_owned(),
        projected: Some(ProjectedVolumeSource { default_mode: Some(mode), sources: Some(sources) }),
        ..Volume::default()
    }
}

/// Some keys of a Secret as files.
pub fn secret_items(name: &str, items: Vec<KeyToPath>) -> VolumeProjection {
    VolumeProjection {
        secret: Some(SecretProjection { name: name.to_owned(), items: Some(items), optional: None }),
        ..VolumeProjection::default()
    }
}

/// Some keys of a ConfigMap as files.
pub fn config_map_items(name: &str, items: Vec<KeyToPath>) -> VolumeProjection {
    VolumeProjection {
        config_map: Some(ConfigMapProjection { name: name.to_owned(), items: Some(items), optional: None }),
        ..VolumeProjection::default()
    }
}

/// All keys of a ConfigMap as files.
pub fn config_map_source(name: &str) -> VolumeProjection {
    VolumeProjection {
        config_map: Some(ConfigMapProjection { name: name.to_owned(), ..ConfigMapProjection::default() }),
        ..VolumeProjection::default()
    }
}

/// A key as a file, optionally with its own mode.
pub fn item(key: &str, path: &str, mode: Option<i32>) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: path.to_owned(), mode }
}

/// Mounts a volume at a path.
pub fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

/// Makes a mount read-only.
pub fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount }
}

/// Mounts one file of a volume, read-only. Such a mount is not updated when the file changes.
pub fn file_mount(volume: &str, file: &str, path: &str) -> VolumeMount {
    VolumeMount { sub_path: Some(file.to_owned()), ..read_only(mount(volume, path)) }
}
