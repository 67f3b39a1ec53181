//! The packages of the images: those of one state of Debian's archive, whatever Debian has today.

use super::catalog::SUITE;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use xshell::{Shell, cmd};

/// The time of the state. To use a newer one, change this and [`RELEASE`].
pub const SNAPSHOT: &str = "20261030T130000Z";
/// SHA-256 of the signed file `InRelease` of the suite at that time. It has the checksums of the lists of packages, and
/// they have those of the packages.
const RELEASE: &str = "5037551e459c8bb49f47a7102c6d836f2bf06c2bd7672e4fb67c2ed61ca7756f";

/// The current archive, or a mirror in its place.
const CURRENT: &str = "http://deb.debian.org/debian";
/// All earlier states of the archive.
const SNAPSHOTS: &str = "http://snapshot.debian.org/archive/debian";

/// A place to get packages from.
#[derive(Debug, PartialEq, Eq)]
pub struct Archive {
    /// The address, for apt.
    pub address: String,
    /// Whether it has the state of [`SNAPSHOT`].
    pub is_pinned: bool,
}

/// The archive to build from.
pub fn archive(scratch: &Path) -> Archive {
    let archive = choose(|address| release(address, scratch).ok());
    if !archive.is_pinned {
        eprintln!("warning: {SNAPSHOTS} is unreachable, so the images are built from the packages of today");
    }
    archive
}

/// Decides by the checksum of `InRelease` at an address, `None` if that is unreachable.
///
/// The current archive is asked first: a mirror near CI machines may still have the state, and there may be no way to
/// the snapshots. These never change, so theirs is not compared. Without them a build is worth trying: it fails if
/// Debian has another series of Slurm by now.
fn choose(release: impl Fn(&str) -> Option<String>) -> Archive {
    let snapshot = format!("{SNAPSHOTS}/{SNAPSHOT}");
    if release(CURRENT).as_deref() == Some(RELEASE) {
        Archive { address: CURRENT.to_owned(), is_pinned: true }
    } else if release(&snapshot).is_some() {
        Archive { address: snapshot, is_pinned: true }
    } else {
        Archive { address: CURRENT.to_owned(), is_pinned: false }
    }
}

/// The checksum of `InRelease`, downloaded with the settings and proxies of apt.
fn release(archive: &str, scratch: &Path) -> Result<String> {
    let sh = Shell::new()?;
    let (address, file) = (format!("{archive}/dists/{SUITE}/InRelease"), scratch.join("InRelease"));
    let options = ["--option=Acquire::http::Timeout=20", "--option=Acquire::Retries=1"];
    cmd!(sh, "/usr/lib/apt/apt-helper {options...} download-file {address} {file}")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .with_context(|| format!("downloading {address}"))?;
    let digest = format!("{:x}", Sha256::digest(fs::read(&file)?));
    sh.remove_path(&file)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address chosen if the current archive and the snapshot have `InRelease` with these checksums.
    fn chosen(current: Option<&str>, snapshot: Option<&str>) -> (String, bool) {
        let archive =
            choose(|address| if address == CURRENT { current } else { snapshot }.map(ToOwned::to_owned));
        (archive.address, archive.is_pinned)
    }

    #[test]
    fn snapshot_is_used_when_debian_has_moved_on() {
        let snapshot = (format!("http://snapshot.debian.org/archive/debian/{SNAPSHOT}"), true);
        assert_eq!(chosen(Some("newer"), Some(RELEASE)), snapshot);
        assert_eq!(chosen(None, Some(RELEASE)), snapshot);
    }

    #[test]
    fn mirror_with_the_same_state_is_used() {
        assert_eq!(chosen(Some(RELEASE), None), (CURRENT.to_owned(), true));
    }

    #[test]
    fn packages_of_today_are_the_last_resort() {
        assert_eq!(chosen(Some("newer"), None), (CURRENT.to_owned(), false));
    }

    #[test]
    fn snapshot_is_a_time_in_utc() {
        let (date, time) = SNAPSHOT.split_once('T').unwrap();
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        assert!(date.len() == 8 && digits(date), "{SNAPSHOT}");
        assert!(time.len() == 7 && time.ends_with('Z') && digits(&time[..6]), "{SNAPSHOT}");
    }
}
