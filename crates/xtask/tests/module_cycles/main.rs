//! The top-level modules of a crate import each other in one direction: no crate has an import cycle.
//!
//! Code under `#[cfg(test)]` is left out, since tests may use all modules, and so is the crate root, which declares
//! them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod crate_modules;
mod cycles;
mod tokens;

use crate_modules::Crate;
use std::fs;
use std::path::{Path, PathBuf};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The directories of all crates of the workspace.
fn crate_directories() -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(WORKSPACE).join("crates")).unwrap();
    let mut directories: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    directories.push(Path::new(WORKSPACE).join("e2e"));
    directories.sort();
    directories
}

/// One line for each import cycle of a crate.
fn cycles_of_crate(directory: &Path) -> Vec<String> {
    let roots = ["lib.rs", "main.rs"].map(|file| directory.join("src").join(file));
    let roots = roots.iter().filter(|root| root.is_file());
    roots.flat_map(|root| cycles::describe(&Crate::read(root).references)).collect()
}

fn name(directory: &Path) -> &str {
    directory.file_name().unwrap().to_str().unwrap()
}

#[test]
fn top_level_modules_of_a_crate_do_not_import_each_other_in_a_cycle() {
    let directories = crate_directories();
    let cycles: Vec<String> = directories
        .iter()
        .flat_map(|directory| {
            let cycles = cycles_of_crate(directory).into_iter();
            cycles.map(|cycle| format!("{}: {cycle}", name(directory)))
        })
        .collect();
    assert!(cycles.is_empty(), "import cycles between top-level modules:\n{}", cycles.join("\n"));
}
