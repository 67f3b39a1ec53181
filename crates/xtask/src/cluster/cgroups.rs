//! The control groups of a cluster's pods: one tree per hierarchy, named after the cluster.

use super::wait;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Creates a group in every hierarchy.
pub fn create(group: &str) -> Result<()> {
    hierarchies()?.into_iter().try_for_each(|hierarchy| {
        let path = hierarchy.join(group);
        fs::create_dir_all(&path).with_context(|| format!("creating the control group {}", path.display()))
    })
}

/// Removes a group and its children from every hierarchy.
pub fn remove(group: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let path = hierarchy.join(group);
        // A group is busy for a moment after its last process has ended.
        wait::until(Duration::from_secs(10), || {
            remove_tree(&path).with_context(|| format!("removing the control group {}", path.display()))
        })?;
    }
    Ok(())
}

/// The mount points of control groups.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the mounts")?;
    Ok(parse_mounts(&mounts))
}

fn parse_mounts(mounts: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .filter_map(|fields| match fields[..] {
            [_, path, "cgroup" | "cgroup2", ..] => Some(PathBuf::from(path)),
            _ => None,
        })
        .collect()
}

/// Removes a group after its children. Its files cannot be removed, they disappear with it.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::parse_mounts;
    use std::path::Path;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(parse_mounts(mounts), ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"].map(Path::new));
    }
}
