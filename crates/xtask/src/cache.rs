//! The cache of built programs and images, shared by all checkouts and keyed by version.

use crate::progress::step;
use anyhow::{Context, Result};
use fs4::fs_std::FileExt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use xshell::Shell;

/// The directory of the cache, which outlives checkouts and clusters.
pub fn root() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("slurm-operator"))
}

/// Whether the directory `<name>/<key>` exists.
pub fn contains(name: &str, key: &str) -> Result<bool> {
    Ok(root()?.join(name).join(key).is_dir())
}

/// Makes parallel commands on `<name>` wait for one another, until the result is dropped.
pub fn lock(name: &str) -> Result<File> {
    let parent = root()?.join(name);
    Shell::new()?.create_dir(&parent)?;
    let path = parent.join(".lock");
    let lock = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    lock.lock_exclusive().with_context(|| format!("locking {}", path.display()))?;
    Ok(lock)
}

/// The directory `<name>/<key>`, built by `build` if it does not exist.
///
/// `build` fills an empty directory, which is renamed when complete, so that an aborted build leaves no entry. A lock
/// per name makes parallel callers wait for one build.
pub fn entry(name: &str, key: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let parent = root()?.join(name);
    let finished = parent.join(key);
    if finished.is_dir() {
        return Ok(finished);
    }
    let _lock = lock(name)?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let sh = Shell::new()?;
    let partial = parent.join(format!("{key}.partial"));
    sh.remove_path(&partial)?;
    sh.create_dir(&partial)?;
    step(format!("build {name} {key}"), || build(&partial))?;
    fs::rename(&partial, &finished).with_context(|| format!("finishing {}", finished.display()))?;
    Ok(finished)
}
