//! The control groups of a cluster's pods: one tree per hierarchy, named after the cluster.

use super::wait;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The controllers of version 2 without which the kubelet refuses a group, if the machine has them.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "hugetlb", "memory", "pids"];

/// Creates a group in every hierarchy.
pub fn create(group: &str) -> Result<()> {
    hierarchies()?.into_iter().try_for_each(|hierarchy| {
        enable_controllers(&hierarchy)?;
        let path = hierarchy.join(group);
        fs::create_dir_all(&path).with_context(|| format!("creating the control group {}", path.display()))
    })
}

/// Enables controllers in the groups below a root of version 2; version 1 has a hierarchy per controller.
///
/// They stay enabled: a group of another program may have come to use one, and would lose its limits.
fn enable_controllers(root: &Path) -> Result<()> {
    let read = |file| fs::read_to_string(root.join(file));
    let (Ok(available), Ok(enabled)) = (read("cgroup.controllers"), read(SUBTREE)) else { return Ok(()) };
    let Some(change) = missing_controllers(&available, &enabled) else { return Ok(()) };
    fs::write(root.join(SUBTREE), &change).with_context(|| {
        format!(
            "writing {change} to {}, which a container can do only after all its processes have left that group",
            root.join(SUBTREE).display()
        )
    })
}

/// The file with the controllers of all children of a group.
const SUBTREE: &str = "cgroup.subtree_control";

/// What to write to `cgroup.subtree_control`; `None` if nothing is missing.
fn missing_controllers(available: &str, enabled: &str) -> Option<String> {
    let has = |list: &str, name: &str| list.split_whitespace().any(|entry| entry == name);
    let missing = CONTROLLERS.iter().filter(|name| has(available, name) && !has(enabled, name));
    let change: Vec<String> = missing.map(|name| format!("+{name}")).collect();
    (!change.is_empty()).then(|| change.join(" "))
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
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(parse_mounts(mounts), ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"].map(Path::new));
    }

    #[test]
    fn missing_controllers_of_version_2_are_enabled() {
        let ubuntu = "cpuset cpu io memory hugetlb pids rdma misc\n";
        let change = missing_controllers(ubuntu, "cpu io memory pids\n");
        assert_eq!(change.as_deref(), Some("+cpuset +hugetlb"));
        assert_eq!(missing_controllers(ubuntu, ubuntu), None);
        assert_eq!(missing_controllers("cpu memory pids", "memory").as_deref(), Some("+cpu +pids"));
        assert_eq!(missing_controllers("", ""), None);
    }

    /// On a machine with both versions, version 2 has the controllers that version 1 does not use.
    #[test]
    fn new_groups_of_version_2_have_the_controllers_of_the_kubelet() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let group = format!("slurm-operator.test-cgroups-{}", std::process::id());
        create(&group).unwrap();
        let controllers = |path: &Path| fs::read_to_string(path.join("cgroup.controllers"));
        let roots = hierarchies().unwrap().into_iter();
        let missing: Vec<_> = roots
            .filter_map(|root| {
                missing_controllers(&controllers(&root).ok()?, &controllers(&root.join(&group)).unwrap())
            })
            .collect();
        remove(&group).unwrap();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
