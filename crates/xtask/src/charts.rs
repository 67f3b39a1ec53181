//! The Helm charts: lints, unit tests, and the files that are generated from them.

mod docs;
mod generated;
mod images;
#[cfg(test)]
mod kind;
mod manifests;

use crate::WORKSPACE;
use crate::cluster::Program;
use crate::commands::output;
use anyhow::{Context, Result, ensure};
use generated::Generated;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use xshell::Shell;

/// Commands for charts.
#[derive(clap::Subcommand)]
pub enum Arguments {
    /// Lint the charts, run their unit tests and check the files that are generated from them.
    Test,
    /// Write the README of each chart.
    Docs,
    /// Write the manifests of the operator in deploy/.
    Render,
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
        Arguments::Docs => docs::files()?.iter().try_for_each(Generated::write),
        Arguments::Render => manifests::files()?.iter().try_for_each(Generated::write),
    }
}

/// Runs all tests of all charts.
pub fn test() -> Result<Counts> {
    let helm = Program::HELM.file()?;
    let mut counts = Counts::default();
    let copy = Shell::new()?.create_temp_dir()?;
    copy_with_dependencies(copy.path())?;
    for chart in charts(copy.path())? {
        output(Command::new(&helm).args(["lint", "--strict", "--quiet"]).arg(&chart))?;
        if chart.join("tests").is_dir() {
            counts.add(unit_tests(&chart)?);
        }
    }
    for file in docs::files()? {
        counts.add(file.check("docs")?);
    }
    for file in manifests::files()? {
        counts.add(file.check("render")?);
    }
    counts.add(images::check()?);
    Ok(counts)
}

impl Counts {
    /// The counts of one test.
    fn of(passes: bool) -> Self {
        Self { passed: usize::from(passes), failed: usize::from(!passes) }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Copies all charts, and adds the library to those of the components, as `helm dependency build` does. In the repository
/// they do without, since it would be there once for each of them.
fn copy_with_dependencies(into: &Path) -> Result<()> {
    let helm = Program::HELM.file()?;
    output(Command::new("cp").arg("--archive").arg(format!("{}/.", root().display())).arg(into))?;
    for chart in charts(into)? {
        if fs::read_to_string(chart.join("Chart.yaml"))?.contains("repository: file://") {
            output(Command::new(&helm).args(["dependency", "update", "--skip-refresh"]).arg(&chart))?;
        }
    }
    Ok(())
}

/// The directory of all charts of the repository.
fn root() -> PathBuf {
    Path::new(WORKSPACE).join("charts")
}

/// The directories of all charts below one, sub-charts included.
fn charts(root: &Path) -> Result<Vec<PathBuf>> {
    let sh = Shell::new()?;
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in sh.read_dir(&directory)? {
            if entry.join("Chart.yaml").is_file() {
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
    let name = chart.file_name().unwrap_or_default().display();
    println!("chart {name}: {} passed, {} failed", counts.passed, counts.failed);
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
    use super::{Counts, counts_in, root};
    use std::fs;

    /// They differ in nothing but their rights.
    #[test]
    fn controllers_have_the_same_values() {
        let read = |chart: &str, file: &str| {
            fs::read_to_string(root().join("slurm-operator/charts").join(chart).join(file)).unwrap()
        };
        for file in ["values.yaml", "values.schema.json"] {
            for chart in ["loginset", "accounting", "restapi", "token"] {
                assert!(
                    read(chart, file) == read("controller", file),
                    "{chart}/{file} differs from that of controller"
                );
            }
        }
    }

    #[test]
    fn counts_are_read_from_the_summary() {
        let line = "Tests:       4 failed, 2 errored, 63 passed, 67 total";
        assert_eq!(counts_in(line), Some(Counts { passed: 63, failed: 4 }));
        assert_eq!(counts_in("Tests:       9 passed, 9 total"), Some(Counts { passed: 9, failed: 0 }));
        assert_eq!(counts_in("Test Suites: 1 passed, 1 total"), None);
    }
}
