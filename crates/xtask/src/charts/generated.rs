//! Files that are generated from the charts and committed: written by one command, compared by the tests.

use super::Counts;
use crate::WORKSPACE;
use anyhow::Result;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use xshell::Shell;

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Its path, relative to the root of the repository.
    pub path: String,
    /// What it has to contain.
    pub content: String,
}

impl Generated {
    /// Writes the file.
    pub fn write(&self) -> Result<()> {
        println!("{}", self.path);
        Ok(Shell::new()?.write_file(Path::new(WORKSPACE).join(&self.path), &self.content)?)
    }

    /// Counts as a test whether the file is up to date; if not, prints the command that writes it.
    pub fn check(&self, command: &str) -> Result<Counts> {
        let is_current = self.is_current_in(Path::new(WORKSPACE))?;
        if !is_current {
            println!("{} is outdated: run `cargo xtask charts {command}`", self.path);
        }
        Ok(Counts::of(is_current))
    }

    /// Whether the file below `root` has this content. A missing file has not.
    fn is_current_in(&self, root: &Path) -> Result<bool> {
        match fs::read_to_string(root.join(&self.path)) {
            Ok(content) => Ok(content == self.content),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Generated;
    use std::fs;

    #[test]
    fn missing_or_other_file_is_outdated() {
        let root = tempfile::tempdir().unwrap();
        let file = Generated { path: "a.md".to_owned(), content: "new\n".to_owned() };
        assert!(!file.is_current_in(root.path()).unwrap());
        fs::write(root.path().join("a.md"), "old\n").unwrap();
        assert!(!file.is_current_in(root.path()).unwrap());
        fs::write(root.path().join("a.md"), "new\n").unwrap();
        assert!(file.is_current_in(root.path()).unwrap());
    }
}
