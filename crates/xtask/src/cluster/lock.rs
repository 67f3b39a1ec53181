//! The lock that allows one command at a time per cluster.

use anyhow::{Context, Result};
use fs4::fs_std::FileExt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Creates `dir` if necessary and locks it until the result is dropped or the process ends.
///
/// The lock is on the directory itself, so that removing the cluster leaves no lock file behind. A process that waited
/// while the directory was removed starts over with the new directory of that name.
pub fn lock(dir: &Path) -> Result<File> {
    loop {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let Ok(lock) = File::open(dir) else { continue };
        if !FileExt::try_lock_exclusive(&lock)? {
            eprintln!("waiting for another command on this cluster");
            lock.lock_exclusive().with_context(|| format!("locking {}", dir.display()))?;
        }
        let is_current =
            fs::metadata(dir).is_ok_and(|now| lock.metadata().is_ok_and(|m| m.ino() == now.ino()));
        if is_current {
            return Ok(lock);
        }
    }
}
