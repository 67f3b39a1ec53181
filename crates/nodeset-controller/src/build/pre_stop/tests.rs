//! Runs the script in a shell with a fake scontrol.

use super::pre_stop;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Records each call; `show node` prints the content of a file and fails without it.
const SCONTROL: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit
echo "$*" >> calls
case "$*" in
"--oneliner show node "*) cat record ;;
*) exit "$(cat refusal)" ;;
esac
"#;

fn script() -> String {
    pre_stop().exec.unwrap().command.unwrap().pop().unwrap()
}

/// A directory with the fake scontrol and the tools that the script needs.
fn directory(test: &str, tools: &[&str]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pre-stop-{test}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    put_executable(&path.join("scontrol"), SCONTROL);
    put_executable(&path.join("hostname"), "#!/bin/sh\necho gpu-0\n");
    fs::write(path.join("refusal"), "0").unwrap();
    for tool in tools {
        symlink(Path::new("/usr/bin").join(tool), path.join(tool)).unwrap();
    }
    path
}

fn put_executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the script. The KILL signal tells a hanging test from the script's own timeout.
fn run(directory: &Path, script: &str) -> Output {
    Command::new("/usr/bin/timeout")
        .args(["--signal=KILL", "20", "/usr/bin/sh", "-c", script])
        .env("PATH", directory)
        .output()
        .unwrap()
}

fn record(state: &str, reason: &str) -> String {
    let reason = if reason.is_empty() { String::new() } else { format!("Reason={reason} [root@now] ") };
    format!(
        "NodeName=gpu-0 CoresPerSocket=1 OS=Linux 6.1.0 #1 SMP Debian RealMemory=1 {state}ThreadsPerCore=1 \
         Partitions=p  BootTime=None {reason}Comment=State=IDLE+DRAIN [1] Extra=none\n"
    )
}

const SHOW: &str = "--oneliner show node gpu-0";
const DOWN: &str = "update nodename=gpu-0 state=down reason=slurm-operator: Pod is terminating";
const DOWN_WITH_ADMIN_REASON: &str =
    "update nodename=gpu-0 state=down reason=slurm-operator: Pod is terminating (bad disk [3], $(ask Bob))";

const NO_REASON: &str = "";
const OUR_REASON: &str = "slurm-operator: Pod (ns/gpu-0) was cordoned";
const ADMIN_REASON: &str = "bad disk [3], $(ask Bob)";
const REASON_WITH_STATE: &str = "State=IDLE+DRAIN was last week";

#[rstest]
#[case::idle("State=IDLE ", NO_REASON, &[SHOW, DOWN])]
#[case::busy("State=ALLOCATED ", NO_REASON, &[SHOW, DOWN])]
#[case::not_responding("State=IDLE+NOT_RESPONDING ", NO_REASON, &[SHOW, DOWN])]
#[case::undrained("State=IDLE+UNDRAIN ", NO_REASON, &[SHOW, DOWN])]
#[case::in_service_with_our_reason("State=IDLE ", OUR_REASON, &[SHOW, DOWN])]
#[case::in_service_with_admin_reason("State=IDLE ", ADMIN_REASON, &[SHOW, DOWN_WITH_ADMIN_REASON])]
#[case::down("State=DOWN ", NO_REASON, &[SHOW, DOWN])]
#[case::down_with_our_reason("State=DOWN+CLOUD ", OUR_REASON, &[SHOW, DOWN])]
#[case::down_with_admin_reason("State=DOWN ", ADMIN_REASON, &[SHOW])]
#[case::down_and_not_responding("State=DOWN+NOT_RESPONDING ", "Not responding", &[SHOW])]
#[case::drained("State=IDLE+DRAIN ", ADMIN_REASON, &[SHOW])]
#[case::drained_with_our_reason("State=IDLE+DRAIN ", OUR_REASON, &[SHOW])]
#[case::draining("State=MIXED+DRAIN+NOT_RESPONDING ", REASON_WITH_STATE, &[SHOW])]
#[case::down_and_drained("State=DOWN+CLOUD+DRAIN ", REASON_WITH_STATE, &[SHOW])]
fn node_is_set_down_unless_drained_or_downed_and_keeps_the_admin_reason(
    #[case] state: &str,
    #[case] reason: &str,
    #[case] calls: &[&str],
) {
    for tools in [&["cat", "dirname", "timeout"][..], &["cat", "dirname"]] {
        let test = format!("{state}{}", reason.len());
        let directory = directory(&test.replace([' ', '='], ""), tools);
        fs::write(directory.join("record"), record(state, reason)).unwrap();
        let output = run(&directory, &script());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(directory.join("calls")).unwrap().lines().collect::<Vec<_>>(), calls);
        fs::remove_dir_all(directory).unwrap();
    }
}

#[test]
fn failed_show_node_is_an_error_and_leaves_the_node_unchanged() {
    let directory = directory("no-record", &["cat", "dirname", "timeout"]);
    let output = run(&directory, &script());
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(directory.join("calls")).unwrap().trim(), SHOW);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn rejected_update_is_an_error() {
    let directory = directory("refused", &["cat", "dirname", "timeout"]);
    fs::write(directory.join("record"), record("State=IDLE ", NO_REASON)).unwrap();
    fs::write(directory.join("refusal"), "7").unwrap();
    assert_eq!(run(&directory, &script()).status.code(), Some(7));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn hanging_scontrol_is_ended_by_the_timeout() {
    let directory = directory("hangs", &["cat", "dirname", "sleep", "timeout"]);
    put_executable(&directory.join("scontrol"), "#!/bin/sh\nexec sleep 15\n");
    let script = script();
    assert!(script.contains("\nseconds=5\n"));
    assert_eq!(run(&directory, &script.replace("seconds=5", "seconds=0.2")).status.code(), Some(124));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn script_starts_with_the_mark_of_the_operator() {
    let script = script();
    assert!(script.starts_with("# Script of the Slurm operator: pre-stop\n"));
    assert!(script.is_ascii() && !script.contains('\r'));
}
