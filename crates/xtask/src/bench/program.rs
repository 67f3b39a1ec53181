//! The program that is measured.

use anyhow::{Context, Result};
use std::path::PathBuf;

/// A program with the flags of our controllers, and its name.
pub struct MeasuredProgram {
    /// The name in the results, and the first part of the program's User-Agent.
    pub name: String,
    /// The file to execute.
    pub file: PathBuf,
}

impl MeasuredProgram {
    /// The program in a file, named after the file.
    pub fn new(file: PathBuf) -> Result<Self> {
        let name = file.file_name().and_then(|name| name.to_str()).context("the program has no file name")?;
        Ok(Self { name: name.to_owned(), file })
    }
}

#[cfg(test)]
mod tests {
    use super::MeasuredProgram;

    #[test]
    fn program_is_named_after_its_file() {
        let program = MeasuredProgram::new("/builds/other-operator".into()).unwrap();
        assert_eq!(program.name, "other-operator");
        assert!(MeasuredProgram::new("/".into()).is_err());
    }
}
