//! Container images of a real Slurm, and what tests need beside it, built from Debian packages.
//!
//! Needs neither a container engine nor a registry: root file systems come from mmdebstrap, the OCI archives are
//! written here and enter a node with `ctr image import`. Knows nothing about clusters.

pub mod catalog;
mod oci;
mod overlay;
mod rootfs;
mod sources;

use crate::cache;
use crate::progress::step;
use anyhow::Result;
use catalog::{ALL, Base};
use sources::Sources;
use std::path::PathBuf;

/// What can be done with images.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Build what is missing and print the archives.
    Build,
    /// Print the image references.
    List,
}

/// Runs one image command.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Build => {
            for archive in step("images", archives)? {
                println!("{}", archive.display());
            }
        }
        Command::List => ALL.iter().for_each(|image| println!("{}", image.reference())),
    }
    Ok(())
}

/// OCI archives that together hold every image; builds what is missing.
///
/// Images of one archive share their layers. `ctr image import` takes the names from the archive.
pub fn archives() -> Result<Vec<PathBuf>> {
    Base::ALL.into_iter().map(archive).collect()
}

/// The archive of all images on one base.
fn archive(base: Base) -> Result<PathBuf> {
    let sources = Sources::read(base)?;
    let entry = cache::entry("images", &format!("{}-{}", base.name(), sources.archive_key()), |dir| {
        let mut layers = vec![oci::Layer::from_tar(rootfs::tar(base, &sources)?)?];
        if let Some(files) = overlay::tar(&sources, dir)? {
            layers.push(oci::Layer::from_tar(files)?);
        }
        oci::write_archive(&dir.join(ARCHIVE), &layers, base.images())
    })?;
    Ok(entry.join(ARCHIVE))
}

const ARCHIVE: &str = "images.tar";
