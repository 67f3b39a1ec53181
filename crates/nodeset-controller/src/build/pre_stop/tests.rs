//! The script, run by a shell that finds another scontrol.

use super::pre_stop;
use rstest::rstest;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Notes each call; answers the question for a node with the content of a file, if there is one.
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

/// A directory with a scontrol and what the script needs besides.
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

/// Runs a shell that is killed if it takes too long, which is not how the script ends what takes too long.
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

const LOOK: &str = "--oneliner show node gpu-0";
const DOWN: &str = "update nodename=gpu-0 state=down reason=slurm-operator: Pod is terminating";
const DOWN_AND_THEIR_WORDS: &str =
    "update nodename=gpu-0 state=down reason=slurm-operator: Pod is terminating (bad disk [3], $(ask Bob))";

const NOBODY: &str = "";
const WE: &str = "slurm-operator: Pod (ns/gpu-0) was cordoned";
const THEY: &str = "bad disk [3], $(ask Bob)";
const OF_STATES: &str = "State=IDLE+DRAIN was last week";

#[rstest]
#[case::idle("State=IDLE ", NOBODY, &[LOOK, DOWN])]
#[case::busy("State=ALLOCATED ", NOBODY, &[LOOK, DOWN])]
#[case::silent("State=IDLE+NOT_RESPONDING ", NOBODY, &[LOOK, DOWN])]
#[case::no_longer_drained("State=IDLE+UNDRAIN ", NOBODY, &[LOOK, DOWN])]
#[case::in_service_with_our_words("State=IDLE ", WE, &[LOOK, DOWN])]
#[case::in_service_with_their_words("State=IDLE ", THEY, &[LOOK, DOWN_AND_THEIR_WORDS])]
#[case::down("State=DOWN ", NOBODY, &[LOOK, DOWN])]
#[case::down_by_us("State=DOWN+CLOUD ", WE, &[LOOK, DOWN])]
#[case::down_by_them("State=DOWN ", THEY, &[LOOK])]
#[case::down_and_silent("State=DOWN+NOT_RESPONDING ", "Not responding", &[LOOK])]
#[case::drained("State=IDLE+DRAIN ", THEY, &[LOOK])]
#[case::drained_by_us("State=IDLE+DRAIN ", WE, &[LOOK])]
#[case::draining("State=MIXED+DRAIN+NOT_RESPONDING ", OF_STATES, &[LOOK])]
#[case::down_and_drained("State=DOWN+CLOUD+DRAIN ", OF_STATES, &[LOOK])]
fn a_node_is_taken_down_unless_somebody_did_and_keeps_their_words(
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
fn a_node_that_could_not_be_looked_at_is_left_alone_and_that_is_said() {
    let directory = directory("unseen", &["cat", "dirname", "timeout"]);
    let output = run(&directory, &script());
    assert!(!output.status.success());
    assert_eq!(fs::read_to_string(directory.join("calls")).unwrap().trim(), LOOK);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_slurm_refuses_is_an_error() {
    let directory = directory("refused", &["cat", "dirname", "timeout"]);
    fs::write(directory.join("record"), record("State=IDLE ", NOBODY)).unwrap();
    fs::write(directory.join("refusal"), "7").unwrap();
    assert_eq!(run(&directory, &script()).status.code(), Some(7));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_slurmctld_that_does_not_answer_holds_nobody_up() {
    let directory = directory("hangs", &["cat", "dirname", "sleep", "timeout"]);
    put_executable(&directory.join("scontrol"), "#!/bin/sh\nexec sleep 15\n");
    let script = script();
    assert!(script.contains("\nseconds=5\n"));
    assert_eq!(run(&directory, &script.replace("seconds=5", "seconds=0.2")).status.code(), Some(124));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_script_says_whose_it_is() {
    let script = script();
    assert!(script.starts_with("# Script of the Slurm operator: pre-stop\n"));
    assert!(script.is_ascii() && !script.contains('\r'));
}
