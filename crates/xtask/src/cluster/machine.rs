//! What a machine needs before anything is installed or built on it.

use super::components::Component;
use super::golang;
use super::profile::{Profile, TOOLS};
use anyhow::{Result, ensure};

/// Fails unless this machine can run clusters of a profile. Commands call it before work that takes minutes.
pub fn check_machine(profile: Profile) -> Result<()> {
    ensure_root()?;
    for program in TOOLS.into_iter().chain(profile.components().filter_map(Component::built)) {
        if !program.is_built()? {
            return golang::ensure_go();
        }
    }
    Ok(())
}

/// Fails unless the user is root.
pub fn ensure_root() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a local cluster needs root, to create namespaces and mounts"
    );
    Ok(())
}
