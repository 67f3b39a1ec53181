//! The binary refuses flags that contradict each other, before it does anything else.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use rstest::rstest;
use std::process::{Command, Output};

fn run(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_expectations"));
    // A process that does not refuse its flags ends here.
    command.args(["--kubeconfig=/does/not/exist", "--service-accounts=slinky/nodesets"]).args(flags);
    command.output().unwrap()
}

#[rstest]
#[case::write_limit(&["--write-limit=9s"], "the time limit of a write is 9s, below Slurm's MessageTimeout of 10s")]
#[case::landing_below_write_limit(
    &["--write-limit=41s", "--batch-lease=60s"],
    "the landing time of a write is 40s, below its time limit of 41s"
)]
#[case::landing_below_slurm(
    &["--landing-limit=39s"],
    "the landing time of a write is 39s, below 40s: four times Slurm's MessageTimeout"
)]
#[case::clock_drift(&["--clock-drift-ppm=499"], "the difference of clock rates is 499 ppm, below the 500 ppm of NTP")]
#[case::lease(
    &["--batch-lease=18s"],
    "the lease is 18s, below 19s: one write, two calls to the service and 5 s to send writes"
)]
#[case::rpc_limit(&["--rpc-limit=6s"], "the lease is 25s, below 27s")]
#[case::grace(&["--batch-grace=31s"], "the grace is 31s, below 31.12s: the landing of the last write")]
#[case::dead_after(&["--dead-after=5s"], "a replica is dead after 5s, below 6s: three heartbeats")]
#[case::heartbeat(&["--heartbeat=3s"], "a replica is dead after 6s, below 9s: three heartbeats")]
#[case::renew_deadline(
    &["--leader-elect-renew-deadline=14800ms"],
    "the renew deadline is 14.8s, too long for a Lease of 15s: clocks may differ by 1 %"
)]
#[case::retry_period(
    &["--leader-elect-retry-period=6s"],
    "the retry period is 6s, more than half of the renew deadline of 10s"
)]
#[case::no_port(&["--listen-addr=0"], "--listen-addr needs a port")]
#[case::no_creates(&["--max-creates=0"], "--max-creates")]
#[case::no_begins(&["--max-begins=0"], "--max-begins")]
fn contradictory_flags_are_refused(#[case] flags: &[&str], #[case] message: &str) {
    let output = run(flags);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(message), "{error}");
}

#[test]
fn default_flags_are_accepted() {
    let output = run(&[]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("/does/not/exist"), "the kubeconfig is read next: {error}");
}

#[test]
fn help_groups_the_flags_and_names_the_subcommand() {
    let output = run(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    for expected in
        ["status", "Certificate:", "Limits:", "Timing:", "Process:", "--tls-self-issued", "[default: 25s]"]
    {
        assert!(help.contains(expected), "{expected} is not in {help}");
    }
}
