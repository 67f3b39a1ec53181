//! The Helm charts: lints and unit tests.

use crate::WORKSPACE;
use crate::cluster::Program;
use crate::commands::output;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;
use xshell::Shell;

/// Commands for charts.
#[derive(clap::Subcommand)]
pub enum Arguments {
    /// Lint the charts and run their unit tests.
    Test,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
}

/// Runs a command.
pub fn run(arguments: &Arguments) -> Result<()> {
    match arguments {
        Arguments::Test => {
            let Counts { passed, failed } = test()?;
            println!("{passed} passed, {failed} failed");
            ensure!(failed == 0, "{failed} chart tests failed");
            Ok(())
        }
    }
}

/// Runs all tests of all charts.
pub fn test() -> Result<Counts> {
    let helm = Program::HELM.file()?;
    let mut counts = Counts::default();
    for chart in charts()? {
        output(Command::new(&helm).args(["lint", "--strict", "--quiet"]).arg(&chart))?;
        if chart.join("tests").is_dir() {
            counts.add(unit_tests(&chart)?);
        }
    }
    Ok(counts)
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// The directories of all charts, sub-charts included.
fn charts() -> Result<Vec<PathBuf>> {
    let sh = Shell::new()?;
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::from(format!("{WORKSPACE}/charts"))];
    while let Some(directory) = directories.pop() {
        for entry in sh.read_dir(&directory)? {
            // A chart that another one links to is found at its own place.
            if entry.join("Chart.yaml").is_file() && !entry.is_symlink() {
                directories.extend(Some(entry.join("charts")).filter(|charts| charts.is_dir()));
                found.push(entry);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Runs the unit tests of a chart, and prints the output if some fail.
fn unit_tests(chart: &PathBuf) -> Result<Counts> {
    let tool = Program::HELM_UNITTEST.file()?;
    let output = Command::new(tool).arg("--strict").arg(chart).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts = text.lines().find_map(counts_in).context("helm-unittest printed no counts")?;
    println!("{}: {} passed, {} failed", chart.display(), counts.passed, counts.failed);
    if !output.status.success() {
        println!("{text}");
    }
    // A suite that cannot be read counts as no test.
    if !output.status.success() && counts.failed == 0 {
        return Ok(Counts { failed: 1, ..counts });
    }
    Ok(counts)
}

/// The counts in a line like `Tests: 4 failed, 2 errored, 63 passed, 67 total`, where errors count as failures, too.
fn counts_in(line: &str) -> Option<Counts> {
    let parts = line.strip_prefix("Tests:")?;
    let number = |word: &str| {
        let part = parts.split(',').find_map(|part| part.trim().strip_suffix(word));
        part.and_then(|number| number.trim().parse::<usize>().ok()).unwrap_or_default()
    };
    Some(Counts { passed: number("passed"), failed: number("failed") })
}

#[cfg(test)]
mod tests {
    use super::{Counts, counts_in};

    #[test]
    fn counts_are_read_from_the_summary() {
        let line = "Tests:       4 failed, 2 errored, 63 passed, 67 total";
        assert_eq!(counts_in(line), Some(Counts { passed: 63, failed: 4 }));
        assert_eq!(counts_in("Tests:       9 passed, 9 total"), Some(Counts { passed: 9, failed: 0 }));
        assert_eq!(counts_in("Test Suites: 1 passed, 1 total"), None);
    }
}
