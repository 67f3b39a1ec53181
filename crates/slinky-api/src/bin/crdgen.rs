//! Writes the custom resource definitions into the chart and into one plain manifest.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (path, content) in slinky_api::crd::files()? {
        let path = root.join(path);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
