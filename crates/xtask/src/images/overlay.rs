//! The layer with files of the source tree, on top of the packages.

use super::sources::Sources;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use tar::{Builder, Header};

/// Writes the layer into `dir`; `None` if the base has no files. Owners and times do not depend on the checkout.
pub fn tar(sources: &Sources, dir: &Path) -> Result<Option<PathBuf>> {
    if sources.files.is_empty() {
        return Ok(None);
    }
    let path = dir.join("files.tar");
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let mut tar = Builder::new(file);
    for source in &sources.files {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(source.content.len())?);
        header.set_mode(if source.executable { 0o755 } else { 0o644 });
        tar.append_data(&mut header, &source.path, source.content.as_slice())?;
    }
    tar.into_inner()?;
    Ok(Some(path))
}
