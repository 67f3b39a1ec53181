//! Container images of Slurm and of other programs for tests, built from Debian packages.
//!
//! Without a container engine or registry: mmdebstrap creates the root file systems, this module writes OCI archives,
//! and `ctr image import` loads them on a node.

pub mod catalog;
mod debian;
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

/// The image commands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Build missing images and print the paths of the archives.
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

/// The OCI archives of all images; missing ones are built.
///
/// The images of an archive share their layers. `ctr image import` takes the names of the images from the archive.
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
