//! The source files of the images of one base, and the cache keys of the images.

use super::catalog::{Base, SLURM_SERIES, SUITE};
use super::debian::SNAPSHOT;
use anyhow::Result;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use xshell::Shell;

/// Hooks and files of one base.
pub struct Sources {
    base: Base,
    directory: PathBuf,
    hooks: Vec<SourceFile>,
    /// Files added on top of the packages, with paths relative to the image's root, sorted.
    pub files: Vec<SourceFile>,
}

/// One file of the source tree.
pub struct SourceFile {
    /// Relative to the directory it was listed in.
    pub path: PathBuf,
    /// Whether an execute bit is set.
    pub executable: bool,
    /// Its content.
    pub content: Vec<u8>,
}

impl Sources {
    /// Reads `images/<base>`: hooks of mmdebstrap in `hooks`, additional files in `files`.
    pub fn read(base: Base) -> Result<Self> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("images").join(base.name());
        Ok(Self {
            base,
            hooks: read_tree(&directory.join("hooks"))?,
            files: read_tree(&directory.join("files"))?,
            directory,
        })
    }

    /// The options with which mmdebstrap calls the hooks. They are named after their stages: `extract`, `essential` and
    /// `customize`. If packages are only extracted, mmdebstrap does not call those after `extract`.
    pub fn hook_options(&self) -> impl Iterator<Item = String> {
        let directory = self.directory.join("hooks");
        let stages = self.hooks.iter().map(|hook| &hook.path);
        stages.map(move |stage| format!("--{}-hook={}", stage.display(), directory.join(stage).display()))
    }

    /// The cache key of the root file system, a digest of all its inputs.
    pub fn rootfs_key(&self) -> String {
        let mut key = Key::default();
        key.add(SUITE).add(SNAPSHOT).add(SLURM_SERIES).add(self.base.variant());
        for package in self.base.packages() {
            key.add(package);
        }
        key.add_files(&self.hooks).finish()
    }

    /// The cache key of the archive, a digest of all its inputs.
    pub fn archive_key(&self) -> String {
        let mut key = Key::default();
        key.add(self.rootfs_key()).add_files(&self.files);
        for image in self.base.images() {
            key.add(format!("{image:?}"));
        }
        key.finish()
    }
}

/// A digest of a sequence of values, each with its length, so that `ab,c` and `a,bc` differ.
#[derive(Default)]
pub struct Key(Sha256);

impl Key {
    /// Adds a value.
    pub fn add(&mut self, value: impl AsRef<[u8]>) -> &mut Self {
        let value = value.as_ref();
        self.0.update(value.len().to_le_bytes());
        self.0.update(value);
        self
    }

    /// Adds paths, modes and contents of files.
    pub fn add_files(&mut self, files: &[SourceFile]) -> &mut Self {
        for file in files {
            self.add(file.path.as_os_str().as_encoded_bytes())
                .add([u8::from(file.executable)])
                .add(&file.content);
        }
        self
    }

    /// The digest, shortened.
    pub fn finish(&self) -> String {
        let mut digest = format!("{:x}", self.0.clone().finalize());
        digest.truncate(16);
        digest
    }
}

/// All files below `root`, sorted by path; empty if it does not exist.
pub fn read_tree(root: &Path) -> Result<Vec<SourceFile>> {
    let sh = Shell::new()?;
    let mut files = Vec::new();
    let mut pending = if root.is_dir() { vec![root.to_path_buf()] } else { Vec::new() };
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(sh.read_dir(&path)?);
            continue;
        }
        files.push(SourceFile {
            path: path.strip_prefix(root)?.to_path_buf(),
            content: sh.read_binary_file(&path)?,
            executable: fs::metadata(&path)?.permissions().mode() & 0o111 != 0,
        });
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn sources(path: &str, executable: bool, content: &str) -> Sources {
        let file = || SourceFile { path: path.into(), executable, content: content.into() };
        Sources { base: Base::Tools, directory: PathBuf::new(), hooks: vec![file()], files: vec![file()] }
    }

    #[test]
    fn key_depends_on_the_boundaries_of_values() {
        assert_ne!(Key::default().add("ab").add("c").finish(), Key::default().add("a").add("bc").finish());
    }

    #[test]
    fn keys_change_with_path_mode_and_content_of_files() {
        let variants = [
            sources("a", true, "c"),
            sources("b", true, "c"),
            sources("a", false, "c"),
            sources("a", true, "d"),
        ];
        for (index, one) in variants.iter().enumerate() {
            for other in &variants[index + 1..] {
                assert_ne!(one.rootfs_key(), other.rootfs_key());
                assert_ne!(one.archive_key(), other.archive_key());
            }
        }
    }

    #[test]
    fn added_file_changes_the_key_of_the_archive_only() {
        let before = sources("a", true, "b");
        let mut after = sources("a", true, "b");
        after.files.push(SourceFile { path: "c".into(), executable: false, content: Vec::new() });
        assert_eq!(before.rootfs_key(), after.rootfs_key());
        assert_ne!(before.archive_key(), after.archive_key());
    }

    #[test]
    fn keys_are_stable_and_differ_between_bases() {
        let read = |base| Sources::read(base).unwrap().archive_key();
        assert_eq!(read(Base::Slurm), read(Base::Slurm));
        assert_ne!(read(Base::Slurm), read(Base::MariaDb));
    }

    #[test]
    fn hooks_and_commands_are_executable_and_have_valid_syntax() {
        for base in Base::ALL {
            let Sources { hooks, files, .. } = Sources::read(base).unwrap();
            for file in hooks.iter().chain(&files) {
                let name = file.path.display();
                assert_eq!(file.executable, file.content.starts_with(b"#!"), "mode of {name}");
                let shell = if file.content.starts_with(b"#!/bin/sh") { "sh" } else { "bash" };
                let script = std::str::from_utf8(&file.content).unwrap();
                let check = Command::new(shell).args(["-n", "-c", script]).output().unwrap();
                assert!(check.status.success(), "{name}: {}", String::from_utf8_lossy(&check.stderr));
            }
        }
    }

    /// An entrypoint finds its daemon by name and would match itself.
    #[test]
    fn commands_are_not_named_after_daemons() {
        for file in Sources::read(Base::Slurm).unwrap().files {
            let name = file.path.file_name().unwrap().to_str().unwrap();
            assert!(!["slurm", "sack"].iter().any(|daemon| name.starts_with(daemon)), "{name}");
        }
    }

    /// The layers have a merged /usr: a real directory /bin in an upper layer would hide the link to /usr/bin.
    #[test]
    fn added_files_do_not_hide_the_links_of_a_merged_usr() {
        for base in Base::ALL {
            for file in Sources::read(base).unwrap().files {
                let hides = ["bin", "sbin", "lib", "lib64"].iter().any(|link| file.path.starts_with(link));
                assert!(!hides, "{} belongs below usr", file.path.display());
            }
        }
    }
}
