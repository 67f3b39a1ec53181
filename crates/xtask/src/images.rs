//! Container images, built without a container engine or registry: those of Slurm and of other programs for tests from
//! Debian packages, those of the operator from its Dockerfiles.
//!
//! mmdebstrap creates the root file systems, this module writes OCI archives, and `ctr image import` loads them on a node.

pub mod catalog;
mod debian;
mod oci;
pub mod operator;
mod overlay;
mod rootfs;
mod sources;

use crate::cache;
use crate::progress::step;
use anyhow::Result;
pub use catalog::REGISTRY;
use catalog::{ALL, Base};
use operator::OperatorImages;
use sources::Sources;
use std::path::PathBuf;

/// The image commands.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Build missing images and print the paths of the archives.
    Build,
    /// Print the image references.
    List,
    /// Build the images of the operator from its Dockerfiles, and print their sizes, digests and archives.
    Operator {
        /// How they are compiled.
        #[arg(long, value_enum, default_value_t = operator::Profile::Quick)]
        profile: operator::Profile,
    },
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
        Command::Operator { profile } => {
            let images = OperatorImages::build(*profile)?;
            println!("tag: {}", images.tag);
            for image in images.list()? {
                println!("{image}");
            }
        }
    }
    Ok(())
}

/// The OCI archives of all images for nodes; missing ones are built.
///
/// The images of an archive share their layers. `ctr image import` takes the names of the images from the archive.
pub fn archives() -> Result<Vec<PathBuf>> {
    Base::FOR_NODES.into_iter().map(archive).collect()
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
