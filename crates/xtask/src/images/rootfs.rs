//! Root file systems from Debian packages.

use super::catalog::{Base, SLURM_SERIES, SUITE};
use super::sources::Sources;
use crate::{cache, packages};
use anyhow::{Context, Result};
use std::path::PathBuf;
use xshell::{Shell, cmd};

/// What no container needs: half the size of the packages.
const EXCLUDED: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*"];

/// The moments at which mmdebstrap calls a hook, which are also the hooks' file names. Those after `extract` do not
/// come when packages are only extracted.
const HOOKS: [&str; 3] = ["extract", "essential", "customize"];

/// The tar of a root file system; built if it is not there yet.
pub fn tar(base: Base, sources: &Sources) -> Result<PathBuf> {
    let name = "rootfs.tar";
    let entry = cache::entry("rootfs", &format!("{}-{}", base.name(), sources.rootfs_key()), |dir| {
        packages::ensure(&["mmdebstrap"])?;
        let excluded = EXCLUDED.map(|path| format!("--dpkgopt=path-exclude={path}"));
        let hooks = HOOKS.iter().map(|moment| (moment, sources.hooks().join(moment)));
        let hooks = hooks
            .filter(|(_, path)| path.exists())
            .map(|(moment, path)| format!("--{moment}-hook={}", path.display()));
        let variant = base.variant();
        let include = base.packages().join(",");
        // Mirrors that are frozen in time, as CI machines have them, serve release files past their date.
        let dated = r#"--aptopt=Acquire::Check-Valid-Until "false""#;
        let tar = dir.join(name);
        let sh = Shell::new()?;
        sh.set_var("SLURM_SERIES", SLURM_SERIES);
        cmd!(sh, "mmdebstrap --quiet --variant={variant} --include={include} --skip=output/dev")
            .args(excluded)
            .args(hooks)
            .arg(dated)
            .arg(SUITE)
            .arg(tar)
            .quiet()
            .run()
            .context("mmdebstrap (are you root?)")
    })?;
    Ok(entry.join(name))
}
