//! The default cgroup.conf, used unless the user provides one.

/// Renders the default cgroup.conf.
pub fn render_cgroup_conf() -> String {
    "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n".to_owned()
}
