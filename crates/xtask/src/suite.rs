//! The test command, run by CI and by developers before they push.

use crate::WORKSPACE;
use crate::charts;
use crate::cluster::{LocalCluster, Profile, check_machine};
use crate::commands::{cargo, in_workspace};
use crate::images::REGISTRY;
use crate::images::operator::{self, OperatorImages};
use crate::progress::step;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread::{self, ScopedJoinHandle};
use xshell::Shell;

/// End-to-end tests that share a cluster.
struct Suite {
    /// The end of the name of the cluster; also printed before each line of output.
    name: &'static str,
    /// The profile of the cluster.
    profile: &'static str,
    /// What the names of its tests begin with; empty for the tests of no other suite.
    prefix: &'static str,
    /// Number of parallel tests: more than cores, because most of them wait, those without pods most of the time.
    threads: &'static str,
}

const CONTROL_PLANE: Suite =
    Suite { name: "control-plane", profile: "control-plane", prefix: "", threads: "6" };
const NODE: Suite = Suite { name: "node", profile: "node", prefix: "node_", threads: "3" };
/// Installs the operator, which then manages the whole cluster.
const INSTALL: Suite = Suite { name: "install", profile: "node", prefix: "install_", threads: "1" };

/// Environment variables that name the images of the operator to tests.
const IMAGE_REGISTRY: &str = "SLURM_OPERATOR_IMAGE_REGISTRY";
const IMAGE_TAG: &str = "SLURM_OPERATOR_IMAGE_TAG";

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
    let (control_plane, node, install) = (CONTROL_PLANE.cluster()?, NODE.cluster()?, INSTALL.cluster()?);
    step("format", || cargo(&["fmt", "--all", "--check"]))?;
    step("lints", || {
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    })?;
    step("each crate alone", check_each_crate_alone)?;
    // All at once, since every selection of packages enables other features and so compiles most libraries again.
    step("build", || cargo(&["build", "--quiet", "--workspace", "--all-targets"]))?;
    let (mut tally, keep) = (Tally::default(), args.keep_clusters);
    let outcomes = thread::scope(|scope| {
        let simulation = scope.spawn(run_simulation);
        // Beside the unit tests, since end-to-end tests have deadlines.
        let images = scope.spawn(|| OperatorImages::build(operator::Profile::Quick));
        let tests = run_unit_tests(&mut tally).and_then(|()| test_charts(&mut tally));
        let images = join(images);
        let mut outcomes = vec![];
        if let Err(error) = tests {
            outcomes.push(Err(error));
        } else {
            let control_plane = scope.spawn(|| CONTROL_PLANE.run(&control_plane, None, keep));
            let node = scope.spawn(|| NODE.run(&node, None, keep));
            let install = images.and_then(|images| INSTALL.run(&install, Some(&images), keep));
            outcomes.extend([join(control_plane), join(node), install]);
        }
        outcomes.push(join(simulation));
        outcomes
    });
    // A failure in one suite does not hide the results of the others.
    let mut result = Ok(());
    for outcome in outcomes {
        match outcome {
            Ok(counted) => tally.merge(counted),
            Err(error) => result = Err(error),
        }
    }
    // Repeated at the end, where a reader looks first.
    for line in &tally.failures {
        println!("{line}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    result?;
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

impl Suite {
    /// Its cluster, whose name differs from a developer's own.
    fn cluster(&self) -> Result<LocalCluster> {
        LocalCluster::new(&format!("test-{}", self.name).parse()?)
    }

    /// Whether a test is one of this suite.
    fn includes(&self, test: &str) -> bool {
        match self.prefix {
            "" => ![NODE.prefix, INSTALL.prefix].iter().any(|other| test.starts_with(other)),
            own => test.starts_with(own),
        }
    }

    /// Starts the cluster, runs the tests in it and removes it. `images` are those that the tests install.
    fn run(&self, cluster: &LocalCluster, images: Option<&OperatorImages>, keep: bool) -> Result<Tally> {
        cluster.manage("up", &["--profile", self.profile])?;
        let mut command = self.command(cluster)?;
        if let Some(images) = images {
            cluster.import(&images.archives())?;
            command.env(IMAGE_REGISTRY, REGISTRY).env(IMAGE_TAG, &images.tag);
        }
        let mut tally = Tally::with_prefix(self.name);
        let tested = step(format!("end-to-end tests: {}", self.name), || tally.add(&mut command));
        if !keep {
            cluster.manage("down", &[])?;
        }
        tested.map(|()| tally)
    }

    /// The command that runs the tests inside the cluster. The selection of all packages finds them as they were built: they
    /// cannot be built there, since the cluster's network cannot reach the crate registry.
    fn command(&self, cluster: &LocalCluster) -> Result<Command> {
        let mut command = cluster.command("cargo");
        in_workspace(&mut command);
        command.args(["test", "--offline", "--workspace", "--no-fail-fast"]);
        let tests = end_to_end_tests()?.into_iter().filter(|test| self.includes(test));
        command.args(tests.flat_map(|test| ["--test".to_owned(), test]));
        command.args(["--", "--test-threads", self.threads]);
        Ok(command)
    }
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
    fn every_test_is_in_one_suite() {
        let suites_of = |test: &str| [CONTROL_PLANE, NODE, INSTALL].map(|suite| suite.includes(test));
        assert_eq!(suites_of("token"), [true, false, false]);
        assert_eq!(suites_of("node_nodeset"), [false, true, false]);
        assert_eq!(suites_of("install_charts"), [false, false, true]);
    }

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
