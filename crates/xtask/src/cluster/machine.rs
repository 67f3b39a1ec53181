//! What a machine needs before anything is installed or built on it. cargo checks the version of Rust by itself.

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

#[cfg(test)]
mod tests {
    use crate::WORKSPACE;
    use crate::cluster::golang::NEEDED_GO;
    use std::fs;

    const NEEDED_RUST: &str = env!("CARGO_PKG_RUST_VERSION");

    fn read(file: &str) -> String {
        fs::read_to_string(format!("{WORKSPACE}/{file}")).unwrap()
    }

    #[test]
    fn documents_name_the_needed_versions() {
        let (major, minor) = NEEDED_GO;
        for file in ["README.md", "CONTRIBUTING.md"] {
            for version in [format!("Rust {NEEDED_RUST} "), format!("Go {major}.{minor} ")] {
                assert!(read(file).contains(&version), "{file} does not name {version}");
            }
        }
    }

    /// Another patch version in the builder image would have rustup download the one of the toolchain file.
    #[test]
    fn rustup_and_image_builds_use_the_same_version() {
        let toolchain = read("rust-toolchain.toml");
        let version =
            toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
        assert!(version.starts_with(&format!("{NEEDED_RUST}.")), "{version} for {NEEDED_RUST}");
        for file in ["Dockerfile.controller", "Dockerfile.webhook"] {
            let builder = format!("\nARG BUILDER=rust:{version}-slim-trixie");
            assert!(read(file).contains(&builder), "{file} has no {builder:?}");
        }
    }
}
