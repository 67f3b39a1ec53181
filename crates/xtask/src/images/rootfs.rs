//! Root file systems from Debian packages.

use super::catalog::{Base, SLURM_SERIES, SUITE};
use super::debian;
use super::sources::Sources;
use crate::cache;
use crate::packages::{self, Requirement};
use anyhow::{Context, Result};
use std::path::PathBuf;
use xshell::{Shell, cmd};

/// The program, and the keys of Debian, which other distributions lack.
const REQUIREMENTS: [Requirement; 2] = [
    Requirement::new("mmdebstrap", "mmdebstrap"),
    Requirement::new("/usr/share/keyrings/debian-archive-keyring.gpg", "debian-archive-keyring"),
];

/// Files that no container needs, half the size of the packages.
const EXCLUDED: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*"];

/// The tar of a root file system; a missing one is built.
pub fn tar(base: Base, sources: &Sources) -> Result<PathBuf> {
    let name = "rootfs.tar";
    let entry = cache::entry("rootfs", &format!("{}-{}", base.name(), sources.rootfs_key()), |dir| {
        packages::ensure(&REQUIREMENTS)?;
        let excluded = EXCLUDED.map(|path| format!("--dpkgopt=path-exclude={path}"));
        let variant = base.variant();
        let include = base.packages().join(",");
        // A state of the past has a release file past its expiry date.
        let allow_expired = r#"--aptopt=Acquire::Check-Valid-Until "false""#;
        let tar = dir.join(name);
        let sh = Shell::new()?;
        sh.set_var("SLURM_SERIES", SLURM_SERIES);
        cmd!(sh, "mmdebstrap --quiet --variant={variant} --include={include} --skip=output/dev")
            .args(excluded)
            .args(sources.hook_options())
            .arg(allow_expired)
            .arg(SUITE)
            .arg(tar)
            .arg(debian::archive(dir).address)
            .quiet()
            .run()
            .context("mmdebstrap (are you root?)")
    })?;
    Ok(entry.join(name))
}
