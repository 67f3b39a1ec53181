//! Runs the check script with programs that stand in for Slurm's.

use super::CHECK;
use rstest::rstest;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A check pod: a candidate, the configuration in force, and a slurmctld that refuses a slurm.conf with this word.
struct Pod {
    root: PathBuf,
}

const REFUSED: &str = "NotWithMe";

impl Pod {
    fn new(name: &str, candidate: &[(&str, &str)], running: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("check-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (directory, files) in [("etc", candidate), ("running", running), ("bin", &[]), ("tmp", &[])] {
            fs::create_dir_all(root.join(directory)).unwrap();
            for (name, text) in files {
                fs::write(root.join(directory).join(name), text).unwrap();
            }
        }
        fs::write(root.join("etc/slurm.key"), "key").unwrap();
        let pod = Self { root };
        // A refused option is an error of slurmctld, which keeps running otherwise.
        let slurmctld = format!(
            "#!/bin/bash\ncp -r \"$(dirname \"$4\")\" \"$TMPDIR/../seen\"\nif grep -q {REFUSED} \"$4\"; then\n\
             echo \"slurmctld: [now] fatal: {REFUSED} in $4\"; exit 1\nfi\n\
             touch \"$TMPDIR/../started\"\nexec sleep 30\n"
        );
        pod.program("slurmctld", &slurmctld);
        pod.program(
            "scontrol",
            "#!/bin/sh\n! grep -q Unparsable \"$SLURM_CONF\" || { echo 'fatal: parse'; exit 1; }\n",
        );
        pod
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.root.join("bin").join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script; slurmctld answers if `is_ready`. Returns the exit code and the termination message.
    fn run(&self, is_ready: bool) -> (Option<i32>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if is_ready {
            let started = self.root.join("started");
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = stream.read(&mut [0; 64]);
                    let status = if started.exists() { "204 NO CONTENT" } else { "503 SERVICE UNAVAILABLE" };
                    let _ = stream.write_all(format!("HTTP/1.0 {status}\r\n\r\n").as_bytes());
                }
            });
        }
        let path = |name: &str| self.root.join(name).to_str().unwrap().to_owned();
        let script = CHECK
            .replace("candidate=/etc/slurm", &format!("candidate={}", path("etc")))
            .replace("/mnt/running", &path("running"))
            .replace("/dev/termination-log", &path("message"))
            .replace("port=6817", &format!("port={port}"))
            .replace("longest=20", if is_ready { "longest=10" } else { "longest=1" })
            .replace("settled=1", "settled=0.1");
        let programs = format!("{}:{}", path("bin"), std::env::var("PATH").unwrap());
        let mut command = Command::new("timeout");
        command.args(["20", "bash", "-c", &script]).env("PATH", programs).env("TMPDIR", path("tmp"));
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let message = fs::read_to_string(self.root.join("message")).unwrap_or_default();
        (status.code(), message.trim().replace(&path("etc"), "/etc/slurm"))
    }

    /// A file of the configuration that slurmctld was started with.
    fn seen(&self, name: &str) -> String {
        fs::read_to_string(self.root.join("seen").join(name)).unwrap()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[rstest]
#[case::accepted("A=1", "A=1", true, 0, "")]
#[case::refused(REFUSED, "A=1", true, 3, "fatal: NotWithMe in /etc/slurm/slurm.conf")]
#[case::unparsable("Unparsable", "A=1", true, 3, "fatal: parse")]
#[case::neither_ready_nor_ended(
    "A=1",
    "A=1",
    false,
    4,
    "slurmctld neither became ready nor ended within 1 s in the check pod"
)]
#[case::both_refused(
    REFUSED,
    REFUSED,
    true,
    4,
    "slurmctld does not start in the check pod with the configuration in force either: \
     fatal: NotWithMe in /etc/slurm/slurm.conf"
)]
fn verdict_is_that_of_slurmctld(
    #[case] candidate: &str,
    #[case] running: &str,
    #[case] is_ready: bool,
    #[case] code: i32,
    #[case] message: &str,
) {
    let pod = Pod::new(
        &format!("verdict-{code}-{}", message.len()),
        &[("slurm.conf", candidate)],
        &[("slurm.conf", running)],
    );
    assert_eq!(pod.run(is_ready), (Some(code), message.to_owned()));
}

/// The lines that a configuration keeps in the check.
fn isolated(name: &str, conf: &str, included: &str) -> (Vec<String>, String) {
    let pod = Pod::new(name, &[("slurm.conf", conf), ("more.inc", included)], &[]);
    assert_eq!(pod.run(true), (Some(0), String::new()));
    let conf = pod.seen("slurm.conf");
    let kept = conf.lines().take_while(|line| !line.starts_with("SlurmctldHost"));
    (kept.filter(|line| !line.is_empty()).map(str::to_owned).collect(), pod.seen("more.inc"))
}

#[test]
fn nothing_of_the_cluster_is_touched() {
    let conf = "SlurmctldHost=a(b)\n slurmctldport = 7000\nStateSaveLocation=/s\nSlurmctldDebug=quiet\n\
                SlurmctldPrimaryOnProg=/p\nResumeProgram=/r\nRebootProgram=/b\nHealthCheckProgram=/h\n\
                JobCompType=jobcomp/mysql\nBurstBufferType=burst_buffer/datawarp\n\
                SlurmctldParameters=enable_configless,reconfig_on_restart\nInclude more.inc\n\
                PrologSlurmctld=/x\nJobCompType=jobcomp/none\n";
    let (kept, included) = isolated("cluster", conf, "SlurmctldPrimaryOnProg=/p\nMinJobAge=9\n");
    let run = String::from_utf8(Command::new("bash").args(["-c", "type -P true"]).output().unwrap().stdout);
    let run = run.unwrap();
    let program = |option: &str| format!("{option}={}", run.trim());
    let expected = [
        &program("SlurmctldPrimaryOnProg"),
        &program("ResumeProgram"),
        &program("RebootProgram"),
        "SlurmctldParameters=enable_configless",
        "Include more.inc",
        "PrologSlurmctld=/x",
        "JobCompType=jobcomp/none",
    ];
    assert_eq!(kept, expected);
    assert_eq!(included, format!("{}\nMinJobAge=9\n", program("SlurmctldPrimaryOnProg")));
}

#[rstest]
#[case::with_slurmdbd(
    "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\n\
     AccountingStorageTRES=gres/gpu:a100,license/x\nPriorityWeightTRES=CPU=1,GRES/gpu=2,gres/fpga=3\n\
     PartitionName=a TRESBillingWeights=\"GRES/gpu:a100=2,license/x=1\"\n",
    &["PriorityWeightTRES=CPU=1,node=2,gres/fpga=3", "PartitionName=a TRESBillingWeights=\"node=2,node=1\""]
)]
#[case::without_slurmdbd("AccountingStorageTRES=gres/gpu\n", &["AccountingStorageTRES=gres/gpu"])]
fn trackable_resources_need_no_slurmdbd(#[case] conf: &str, #[case] expected: &[&str]) {
    assert_eq!(isolated(&format!("tres-{}", expected.len()), conf, "").0, expected);
}
