//! The test command: what CI runs, and what a developer runs before pushing.

use crate::WORKSPACE;
use crate::progress::step;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use xshell::{Shell, cmd};

/// The clusters that end-to-end tests run in, apart from a developer's own.
const CONTROL_PLANE: &str = "test-control-plane";
const NODE: &str = "test-node";
/// End-to-end tests that run pods have names with this prefix; all others need an API server only.
const NEEDS_NODE: &str = "node_";

/// How many chains of accidents the nodeset-controller is told.
const STORIES: &str = "2000";

/// Options of the test command.
#[derive(clap::Args)]
pub struct Args {
    /// Leave the clusters of the end-to-end tests running, for a look.
    #[arg(long)]
    keep_clusters: bool,
}

/// Runs everything and prints one closing line.
pub fn run(args: &Args) -> Result<()> {
    // Asked for now: the tests link this program anew, and then this process is one of a file that is gone.
    let xtask = std::env::current_exe()?;
    let sh = workspace_shell()?;
    step("format", || Ok(cmd!(sh, "cargo fmt --all --check").quiet().run()?))?;
    step("lints", || {
        Ok(cmd!(sh, "cargo clippy --quiet --workspace --all-targets -- --deny warnings").quiet().run()?)
    })?;
    step("each crate alone", || each_crate_alone(&sh))?;
    let mut tally = Tally::default();
    step("unit, snapshot and conformance tests", || {
        let mut tests = Command::new("cargo");
        tests.args(["test", "--workspace", "--exclude", "e2e", "--no-fail-fast"]);
        tally.add(tests.current_dir(WORKSPACE))
    })?;
    step("simulation", || {
        let mut stories = Command::new("cargo");
        stories.args(["test", "--profile", "simulation", "--package", "nodeset-controller", "simulation"]);
        tally.add(stories.env("SIMULATION_SEEDS", STORIES).current_dir(WORKSPACE))
    })?;
    let (node, control_plane): (Vec<_>, Vec<_>) =
        end_to_end_tests()?.into_iter().partition(|test| test.starts_with(NEEDS_NODE));
    for (cluster, profile, tests) in [(CONTROL_PLANE, "control-plane", control_plane), (NODE, "node", node)] {
        end_to_end(&xtask, (cluster, profile), &tests, &mut tally, args.keep_clusters)?;
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed > 0 {
        bail!("{} tests failed", tally.failed);
    }
    Ok(())
}

fn workspace_shell() -> Result<Shell> {
    let sh = Shell::new()?;
    sh.change_dir(WORKSPACE);
    Ok(sh)
}

/// Features that another crate turns on hide those that a crate forgot to ask for.
fn each_crate_alone(sh: &Shell) -> Result<()> {
    for directory in sh.read_dir("crates")? {
        let name = directory.file_name().context("a crate without a name")?.to_owned();
        cmd!(sh, "cargo check --quiet --package {name}").quiet().run()?;
    }
    Ok(())
}

fn end_to_end_tests() -> Result<Vec<String>> {
    let files = workspace_shell()?.read_dir("e2e/tests")?;
    let sources = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    Ok(sources.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect())
}

/// Runs end-to-end tests inside a cluster made for them.
fn end_to_end(
    xtask: &Path,
    (cluster, profile): (&str, &str),
    tests: &[String],
    tally: &mut Tally,
    keep: bool,
) -> Result<()> {
    if tests.is_empty() {
        return Ok(());
    }
    let sh = workspace_shell()?;
    cmd!(sh, "{xtask} cluster up --name {cluster} --profile {profile}").quiet().run()?;
    let outcome = step(format!("end-to-end tests: {profile}"), || {
        // Built outside: inside there is no way to fetch a crate.
        cmd!(sh, "cargo build --quiet --workspace --bins").quiet().run()?;
        cmd!(sh, "cargo test --quiet --package e2e --no-run").quiet().run()?;
        tally.add(&mut inside(xtask, cluster, tests))
    });
    if !keep {
        cmd!(sh, "{xtask} cluster down --name {cluster}").quiet().run()?;
    }
    outcome
}

fn inside(xtask: &Path, cluster: &str, tests: &[String]) -> Command {
    let mut command = Command::new(xtask);
    command.current_dir(WORKSPACE);
    command.args(["cluster", "exec", "--name", cluster, "--"]);
    command.args(["cargo", "test", "--offline", "--package", "e2e", "--no-fail-fast"]);
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    command
}

/// Counts over all test binaries.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Runs a command that prints libtest's output, shows it as it comes and adds its counts.
    fn add(&mut self, command: &mut Command) -> Result<()> {
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
        let output = child.stdout.take().context("no output to read")?;
        let failed_before = self.failed;
        for line in BufReader::new(output).lines() {
            let line = line?;
            println!("{line}");
            let (passed, failed) = count(&line);
            self.passed += passed;
            self.failed += failed;
        }
        let status = child.wait()?;
        if !status.success() && self.failed == failed_before {
            bail!("{command:?} ended with {status}");
        }
        Ok(())
    }
}

/// The numbers in one of libtest's `test result:` lines, zero in any other line.
fn count(line: &str) -> (usize, usize) {
    let Some(results) = line.strip_prefix("test result:") else { return (0, 0) };
    let number_of = |word: &str| {
        results
            .split(['.', ';'])
            .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
            .unwrap_or_default()
    };
    (number_of("passed"), number_of("failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_from_result_lines_only() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(count(line), (12, 3));
        assert_eq!(count("test says_2_passed ... ok"), (0, 0));
    }

    #[test]
    fn a_command_that_fails_without_a_failed_test_is_an_error() {
        let mut tally = Tally::default();
        tally.add(Command::new("sh").args(["-c", "echo 'test result: ok. 2 passed; 0 failed;'"])).unwrap();
        assert_eq!((tally.passed, tally.failed), (2, 0));
        let error = tally.add(Command::new("sh").args(["-c", "exit 101"])).unwrap_err();
        assert!(error.to_string().contains("exit status: 101"), "{error}");
    }
}
