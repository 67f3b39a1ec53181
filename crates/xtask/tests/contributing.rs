//! The map in CONTRIBUTING.md names files that exist.

use std::path::Path;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The paths in backticks that name a file below `crates/`.
fn named_files(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).filter(|name| name.starts_with("crates/")).collect()
}

#[test]
fn files_named_in_contributing_exist() {
    let text = std::fs::read_to_string(Path::new(WORKSPACE).join("CONTRIBUTING.md")).unwrap();
    let named = named_files(&text);
    let missing: Vec<_> = named.iter().filter(|name| !Path::new(WORKSPACE).join(name).is_file()).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md names files that do not exist: {missing:?}");
    assert!(named.len() >= 20, "the map names only {} files", named.len());
}
