//! Removes a cluster in any state.

use super::layout::Layout;
use super::{cgroups, lock, processes};
use crate::progress::step;
use anyhow::{Context, Result};
use std::fs;
use xshell::Shell;

/// Removes a cluster, if it exists.
pub fn down(layout: &Layout) -> Result<()> {
    step(format!("remove cluster {}", layout.name), || {
        let _lock = lock::lock(&layout.dir)?;
        clear(layout)?;
        fs::remove_dir(&layout.dir).with_context(|| format!("removing {}", layout.dir.display()))
    })
}

/// Ends all processes of a cluster and removes everything but its directory, which is locked.
pub fn clear(layout: &Layout) -> Result<()> {
    processes::end(&layout.name)?;
    cgroups::remove(&layout.cgroup())?;
    let sh = Shell::new()?;
    for path in sh.read_dir(&layout.dir)? {
        sh.remove_path(path)?;
    }
    Ok(())
}
