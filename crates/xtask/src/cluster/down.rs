//! Removes a cluster in any state.

use super::layout::Layout;
use super::{cgroups, lock, processes};
use crate::progress::step;
use anyhow::{Context, Result};
use std::fs;

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
    for entry in fs::read_dir(&layout.dir)? {
        let path = entry?.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}
