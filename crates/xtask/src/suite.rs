//! The test command: what CI runs, and what a developer runs before pushing.

use crate::WORKSPACE;
use crate::progress::step;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use xshell::{Shell, cmd};

/// The profiles of the clusters that end-to-end tests run in.
const CONTROL_PLANE: &str = "control-plane";
const NODE: &str = "node";
/// End-to-end tests that run pods have names with this prefix; all others need an API server only.
const NEEDS_NODE: &str = "node_";
/// How many end-to-end tests run at once in each cluster: more than there are cores, because most of them wait.
const AT_ONCE: &str = "3";

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
    let ended = end_to_end(&xtask, &mut tally, args.keep_clusters);
    // Once more at the end, where somebody looks first.
    for line in &tally.failures {
        println!("{line}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    ended?;
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

/// Runs the end-to-end tests in clusters made for them, those of one cluster beside those of the other.
fn end_to_end(xtask: &Path, tally: &mut Tally, keep: bool) -> Result<()> {
    let sh = workspace_shell()?;
    step("end-to-end tests: build", || {
        // Built outside: inside there is no way to fetch a crate.
        cmd!(sh, "cargo build --quiet --workspace --bins").quiet().run()?;
        Ok(cmd!(sh, "cargo test --quiet --package e2e --no-run").quiet().run()?)
    })?;
    let (node, control_plane): (Vec<_>, Vec<_>) =
        end_to_end_tests()?.into_iter().partition(|test| test.starts_with(NEEDS_NODE));
    let suites = [(CONTROL_PLANE, control_plane), (NODE, node)];
    for (profile, _) in &suites {
        let name = cluster(profile);
        cmd!(sh, "{xtask} cluster up --name {name} --profile {profile}").quiet().run()?;
    }
    let outcomes = thread::scope(|scope| {
        let running = suites.each_ref().map(|(profile, tests)| {
            scope.spawn(move || {
                let mut tally = Tally::of(profile);
                let mut command = inside(xtask, profile, tests);
                step(format!("end-to-end tests: {profile}"), || tally.add(&mut command)).map(|()| tally)
            })
        });
        running.map(|thread| thread.join().unwrap_or_else(|_| bail!("the tests of a cluster were abandoned")))
    });
    if !keep {
        for (profile, _) in &suites {
            let name = cluster(profile);
            cmd!(sh, "{xtask} cluster down --name {name}").quiet().run()?;
        }
    }
    // What one cluster could not do does not hide what was seen in the other.
    let mut ended = Ok(());
    for outcome in outcomes {
        match outcome {
            Ok(seen) => tally.merge(seen),
            Err(error) => ended = Err(error),
        }
    }
    ended
}

/// The cluster of a profile, apart from a developer's own.
fn cluster(profile: &str) -> String {
    format!("test-{profile}")
}

fn inside(xtask: &Path, profile: &str, tests: &[String]) -> Command {
    let mut command = Command::new(xtask);
    command.current_dir(WORKSPACE);
    command.args(["cluster", "exec", "--name", &cluster(profile), "--"]);
    command.args(["cargo", "test", "--offline", "--package", "e2e", "--no-fail-fast"]);
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    command.args(["--", "--test-threads", AT_ONCE]);
    command
}

/// Counts over all test binaries.
#[derive(Default)]
struct Tally {
    /// Goes before each line that is shown.
    prefix: String,
    passed: usize,
    failed: usize,
    /// What was printed of the tests that failed.
    failures: Vec<String>,
}

impl Tally {
    /// Of tests that run beside others, whose name goes before each line.
    fn of(name: &str) -> Self {
        Self { prefix: format!("{name}: "), ..Self::default() }
    }

    /// Runs a command that prints libtest's output, shows it as it comes and adds its counts.
    fn add(&mut self, command: &mut Command) -> Result<()> {
        let (output, input) = std::io::pipe()?;
        // What a test says of its failure is told by itself; the way there through the runtime tells nothing.
        command.env("RUST_BACKTRACE", "0").stdout(input.try_clone()?).stderr(input);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        // The command keeps the other end open, and with it this loop going.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let failed_before = self.failed;
        let mut is_failure = false;
        for line in BufReader::new(output).lines() {
            let line = line?;
            println!("{}{line}", self.prefix);
            let (passed, failed) = count(&line);
            self.passed += passed;
            self.failed += failed;
            // All that libtest prints between these two lines is of tests that failed.
            is_failure = (is_failure || line == "failures:") && !line.starts_with("test result:");
            if is_failure {
                self.failures.push(line);
            }
        }
        let status = child.wait()?;
        if !status.success() && self.failed == failed_before {
            bail!("{command:?} ended with {status}");
        }
        Ok(())
    }

    /// Adds what others counted.
    fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend(other.failures);
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
    fn what_failed_is_told_once_more() {
        let told = "running 2 tests\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nnot so\n\nfailures:\n    a\n";
        let told = format!("{told}test result: FAILED. 1 passed; 1 failed;\ntest b ... ok\n");
        let mut tally = Tally::default();
        tally.add(Command::new("printf").args(["%s", &told])).unwrap();
        let expected = ["failures:", "", "---- a stdout ----", "not so", "", "failures:", "    a"];
        assert_eq!(tally.failures, expected);
        assert_eq!((tally.passed, tally.failed), (1, 1));
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
