//! The test command: what CI runs, and what a developer runs before pushing.

use crate::progress::step;
use anyhow::{Result, bail};
use std::process::{Command, Stdio};
use xshell::{Shell, cmd};

/// What to leave out.
#[derive(clap::Args)]
pub struct Args {}

/// Runs everything and prints one closing line.
pub fn run(_args: &Args) -> Result<()> {
    let sh = Shell::new()?;
    step("format", || Ok(cmd!(sh, "cargo fmt --all --check").quiet().run()?))?;
    step("lints", || {
        Ok(cmd!(sh, "cargo clippy --quiet --workspace --all-targets -- --deny warnings").quiet().run()?)
    })?;
    let mut tally = Tally::default();
    step("tests", || tally.add(Command::new("cargo").args(["test", "--workspace", "--no-fail-fast"])))?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        bail!("{} tests failed", tally.failed);
    }
    Ok(())
}

/// Counts over all test binaries.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Runs a command that prints libtest's output, shows it and adds its counts.
    fn add(&mut self, command: &mut Command) -> Result<()> {
        let output = command.stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        let (passed, failed) = count(&text);
        self.passed += passed;
        self.failed += failed;
        if !output.status.success() && failed == 0 {
            bail!("{command:?} ended with {}", output.status);
        }
        Ok(())
    }
}

/// The numbers in libtest's `test result:` lines.
fn count(output: &str) -> (usize, usize) {
    let number_before = |line: &str, word: &str| -> usize {
        line.split(['.', ';'])
            .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
            .unwrap_or_default()
    };
    output
        .lines()
        .filter(|line| line.starts_with("test result:"))
        .map(|line| (number_before(line, "passed"), number_before(line, "failed")))
        .fold((0, 0), |(passed, failed), (p, f)| (passed + p, failed + f))
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn results_of_all_binaries_are_added() {
        let output = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(count(output), (3, 3));
    }
}
