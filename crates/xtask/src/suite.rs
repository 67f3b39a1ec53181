//! The test command, run by CI and by developers before they push.

use crate::WORKSPACE;
use crate::charts;
use crate::cluster::{LocalCluster, Profile, check_machine};
use crate::commands::{cargo, in_workspace};
use crate::progress::step;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::{self, ScopedJoinHandle};
use xshell::Shell;

/// The profiles of the clusters for end-to-end tests.
const CONTROL_PLANE: &str = "control-plane";
const NODE: &str = "node";
/// The name prefix of end-to-end tests that run pods; all others need an API server only.
const NODE_TEST_PREFIX: &str = "node_";
/// Number of parallel end-to-end tests: more than cores, because most of them wait, those without pods most of the time.
const TEST_THREADS: [(&str, &str); 2] = [(CONTROL_PLANE, "6"), (NODE, "3")];

/// Number of fault scenarios in each simulation of the nodeset-controller: as one process, and as three replicas.
const SCENARIOS: &str = "500";

/// A script that runs a command with the lowest priority. Not every kernel has priorities of sessions.
const LOWEST_PRIORITY: &str = r#"[ ! -w /proc/self/autogroup ] || echo 19 > /proc/self/autogroup
exec nice --adjustment=19 "$@""#;

/// Options of the test command.
#[derive(clap::Args)]
pub struct Args {
    /// Keep the clusters of the end-to-end tests running, to inspect them.
    #[arg(long)]
    keep_clusters: bool,
}

/// Runs all checks and tests, and prints the counts.
pub fn run(args: &Args) -> Result<()> {
    check_machine(Profile::Node)?;
    // Before the build, which replaces the file of this process.
    let clusters = [test_cluster(CONTROL_PLANE)?, test_cluster(NODE)?];
    step("format", || cargo(&["fmt", "--all", "--check"]))?;
    step("lints", || {
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    })?;
    step("each crate alone", check_each_crate_alone)?;
    // All at once, since every selection of packages enables other features and so compiles most libraries again.
    step("build", || cargo(&["build", "--quiet", "--workspace", "--all-targets"]))?;
    let mut tally = Tally::default();
    let (tests, simulation) = thread::scope(|scope| {
        let simulation = scope.spawn(run_simulation);
        let tests = run_unit_tests(&mut tally)
            .and_then(|()| test_charts(&mut tally))
            .and_then(|()| run_end_to_end_tests(&clusters, &mut tally, args.keep_clusters));
        (tests, join(simulation))
    });
    let simulation = simulation.map(|counted| tally.merge(counted));
    // Repeated at the end, where a reader looks first.
    for line in &tally.failures {
        println!("{line}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    tests.and(simulation)?;
    if tally.failed > 0 {
        bail!("{} tests failed", tally.failed);
    }
    Ok(())
}

fn run_unit_tests(tally: &mut Tally) -> Result<()> {
    step("unit, snapshot and conformance tests", || {
        let mut tests = Command::new("cargo");
        tests.args(["test", "--workspace", "--exclude", "e2e", "--no-fail-fast"]);
        tally.add(in_workspace(&mut tests))
    })
}

fn test_charts(tally: &mut Tally) -> Result<()> {
    let counts = step("charts", charts::test)?;
    tally.passed += counts.passed;
    tally.failed += counts.failed;
    Ok(())
}

/// Builds and runs the simulation with the lowest priority: other tests mostly wait, and it has no deadlines. Linux
/// shares the CPU between sessions first, and only within them by `nice`: so it is a session of its own.
fn run_simulation() -> Result<Tally> {
    let mut tally = Tally::with_prefix("simulation");
    step("simulation", || {
        let mut simulation = Command::new("setsid");
        simulation.args(["setpriv", "--pdeathsig", "TERM", "sh", "-c", LOWEST_PRIORITY, "sh"]);
        simulation.args(["cargo", "test", "--jobs", "1", "--profile", "simulation"]);
        simulation.args(["--package", "nodeset-controller", "simulation"]);
        tally.add(in_workspace(simulation.env("SIMULATION_SEEDS", SCENARIOS)))
    })?;
    Ok(tally)
}

/// The result of a thread.
fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| bail!("a thread that ran tests panicked"))
}

/// The test cluster of a profile, whose name differs from a developer's own.
fn test_cluster(profile: &str) -> Result<LocalCluster> {
    LocalCluster::new(&format!("test-{profile}").parse()?)
}

/// Checks each crate alone: in the workspace, features enabled by one crate hide those that another one misses.
fn check_each_crate_alone() -> Result<()> {
    for directory in Shell::new()?.read_dir(format!("{WORKSPACE}/crates"))? {
        let name = directory.file_name().and_then(|name| name.to_str());
        cargo(&["check", "--quiet", "--package", name.context("a crate directory without a name")?])?;
    }
    Ok(())
}

fn end_to_end_tests() -> Result<Vec<String>> {
    let files = Shell::new()?.read_dir(format!("{WORKSPACE}/e2e/tests"))?;
    let sources = files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs"));
    Ok(sources.filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned())).collect())
}

/// Runs the end-to-end tests in two clusters in parallel.
fn run_end_to_end_tests(clusters: &[LocalCluster; 2], tally: &mut Tally, keep: bool) -> Result<()> {
    let (node, control_plane): (Vec<_>, Vec<_>) =
        end_to_end_tests()?.into_iter().partition(|test| test.starts_with(NODE_TEST_PREFIX));
    let suites = [(CONTROL_PLANE, &clusters[0], control_plane), (NODE, &clusters[1], node)];
    let outcomes = thread::scope(|scope| {
        let running = suites.each_ref().map(|(profile, cluster, tests)| {
            scope.spawn(move || run_in_cluster(cluster, profile, tests, keep))
        });
        running.map(join)
    });
    // A failure in one cluster does not hide the results of the other.
    let mut result = Ok(());
    for outcome in outcomes {
        match outcome {
            Ok(counted) => tally.merge(counted),
            Err(error) => result = Err(error),
        }
    }
    result
}

/// Starts a cluster, runs end-to-end tests in it and removes it.
fn run_in_cluster(cluster: &LocalCluster, profile: &str, tests: &[String], keep: bool) -> Result<Tally> {
    cluster.manage("up", &["--profile", profile])?;
    let mut tally = Tally::with_prefix(profile);
    let threads = TEST_THREADS.iter().find(|(of, _)| *of == profile).map_or("1", |(_, threads)| *threads);
    let mut command = test_command(cluster, tests, threads);
    let tested = step(format!("end-to-end tests: {profile}"), || tally.add(&mut command));
    if !keep {
        cluster.manage("down", &[])?;
    }
    tested.map(|()| tally)
}

/// The command that runs end-to-end tests inside a cluster. The selection of all packages finds them as they were built:
/// they cannot be built there, since the cluster's network cannot reach the crate registry.
fn test_command(cluster: &LocalCluster, tests: &[String], threads: &str) -> Command {
    let mut command = cluster.command("cargo");
    in_workspace(&mut command);
    command.args(["test", "--offline", "--workspace", "--no-fail-fast"]);
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    command.args(["--", "--test-threads", threads]);
    command
}

/// Counts over all test binaries.
#[derive(Default)]
struct Tally {
    /// Printed before each line.
    prefix: String,
    passed: usize,
    failed: usize,
    /// The output of failed tests.
    failures: Vec<String>,
}

impl Tally {
    /// For tests that run in parallel with others: prints a name before each line.
    fn with_prefix(name: &str) -> Self {
        Self { prefix: format!("{name}: "), ..Self::default() }
    }

    /// Runs a command with libtest's output, prints the output and adds its counts.
    fn add(&mut self, command: &mut Command) -> Result<()> {
        let (output, input) = std::io::pipe()?;
        // Assertions have messages; backtraces through the test harness add nothing.
        command.env("RUST_BACKTRACE", "0").stdout(input.try_clone()?).stderr(input);
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        // Drops the write end of the pipe in the command, which would keep the loop from ending.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let failed_before = self.failed;
        let mut is_failure = false;
        for line in BufReader::new(output).lines() {
            let line = line?;
            println!("{}{line}", self.prefix);
            let (passed, failed) = count(&line);
            self.passed += passed;
            self.failed += failed;
            // Between these two lines libtest prints the output of failed tests.
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

    /// Adds the counts of another tally.
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
    fn only_result_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(count(line), (12, 3));
        assert_eq!(count("test says_2_passed ... ok"), (0, 0));
    }

    #[test]
    fn output_of_failed_tests_is_collected() {
        let output = "running 2 tests\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nnot so\n\nfailures:\n    a\n";
        let output = format!("{output}test result: FAILED. 1 passed; 1 failed;\ntest b ... ok\n");
        let mut tally = Tally::default();
        tally.add(Command::new("printf").args(["%s", &output])).unwrap();
        let expected = ["failures:", "", "---- a stdout ----", "not so", "", "failures:", "    a"];
        assert_eq!(tally.failures, expected);
        assert_eq!((tally.passed, tally.failed), (1, 1));
    }

    #[test]
    fn command_that_fails_without_a_failed_test_is_an_error() {
        let mut tally = Tally::default();
        tally.add(Command::new("sh").args(["-c", "echo 'test result: ok. 2 passed; 0 failed;'"])).unwrap();
        assert_eq!((tally.passed, tally.failed), (2, 0));
        let error = tally.add(Command::new("sh").args(["-c", "exit 101"])).unwrap_err();
        assert!(error.to_string().contains("exit status: 101"), "{error}");
    }
}
