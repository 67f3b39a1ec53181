//! cgroup.conf, for users who bring none of their own.

/// Renders the default cgroup.conf.
pub fn render_cgroup_conf() -> String {
    "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n".to_owned()
}
