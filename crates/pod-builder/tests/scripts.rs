//! Runs the scripts of the sidecars and init containers in their shells.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use k8s_openapi::api::core::v1::Container;
use pod_builder::hash_files;
use pod_builder::parts::{initconf, logfile, reconfigure};
use rstest::rstest;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

fn script(container: &Container) -> String {
    container.command.as_ref().unwrap().last().unwrap().clone()
}

/// An empty directory for one test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Runs a shell with a timeout, so that it ends even if the test aborts.
fn shell(name: &str, script: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["20", name, "-c", script]);
    command
}

fn terminate(child: &mut Child) -> Option<i32> {
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap().code()
}

#[rstest]
#[case(initconf(), "sh")]
#[case(logfile("/x"), "sh")]
#[case(reconfigure(), "bash")]
fn script_is_valid_and_has_the_prefix(#[case] container: Container, #[case] shell: &str) {
    let script = script(&container);
    assert!(script.starts_with("# Script of the Slurm operator: "), "{script}");
    assert!(script.is_ascii() && !script.contains('\r'));
    assert!(Command::new(shell).args(["-n", "-c", &script]).status().unwrap().success());
}

#[test]
fn logfile_prints_the_lines_of_several_writers_and_stops_on_sigterm() {
    let fifo = directory("logfile").join("deep/down/slurmd.log");
    fs::create_dir_all(fifo.parent().unwrap()).unwrap();
    fs::write(&fifo, "an old log file at the same path").unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &script(&logfile("/ignored"))])
        .env("SOCKET", &fifo)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let write = "until [ -p \"$1\" ]; do sleep 0.05; done; echo \"$2\" > \"$1\"";
    for text in ["first daemon", "second daemon"] {
        let status =
            Command::new("timeout").args(["20", "sh", "-c", write, "sh"]).arg(&fifo).arg(text).status();
        assert!(status.unwrap().success(), "logfile does not read the FIFO");
        assert_eq!(lines.next().unwrap().unwrap(), text);
    }
    assert_eq!(fs::metadata(&fifo).unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(terminate(&mut child), Some(0));
    // Outside a container the background `cat` outlives the script: opening and closing the FIFO ends it.
    let _ = Command::new("timeout").args(["0.2", "sh", "-c", ": > \"$1\"", "sh"]).arg(&fifo).status();
}

#[test]
fn initconf_copies_configuration_and_keys_and_guards_the_keys() {
    let root = directory("initconf");
    let volume = root.join("slurm/..2026_01_01");
    fs::create_dir_all(&volume).unwrap();
    for file in ["slurm.conf", "slurmdbd.conf", "slurm.key", "jwt key.key", "notes.txt"] {
        fs::write(volume.join(file), file).unwrap();
        std::os::unix::fs::symlink(volume.join(file), root.join("slurm").join(file)).unwrap();
    }
    let local =
        script(&initconf()).replace("/mnt", root.to_str().unwrap()).replace("401:401", "$(id -u):$(id -g)");
    assert!(shell("sh", &local).stdout(Stdio::null()).status().unwrap().success());
    let copied: Vec<(String, u32)> = {
        let mut files: Vec<_> = fs::read_dir(root.join("etc/slurm")).unwrap().map(Result::unwrap).collect();
        files.sort_by_key(fs::DirEntry::file_name);
        let mode = |file: &fs::DirEntry| file.metadata().unwrap().permissions().mode() & 0o777;
        files.iter().map(|file| (file.file_name().into_string().unwrap(), mode(file))).collect()
    };
    let expected =
        [("jwt key.key", 0o600), ("slurm.conf", 0o644), ("slurm.key", 0o600), ("slurmdbd.conf", 0o600)];
    assert_eq!(copied, expected.map(|(name, mode)| (name.to_owned(), mode)));
}

#[test]
fn initconf_fails_when_a_file_cannot_be_copied() {
    let root = directory("initconf-fails");
    fs::create_dir_all(root.join("slurm")).unwrap();
    fs::create_dir_all(root.join("etc/slurm/slurm.key")).unwrap();
    fs::write(root.join("slurm/slurm.key"), "").unwrap();
    fs::create_dir_all(root.join("etc/slurm/slurm.key/slurm.key")).unwrap();
    let local =
        script(&initconf()).replace("/mnt", root.to_str().unwrap()).replace("401:401", "$(id -u):$(id -g)");
    let output = shell("sh", &local).output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The reconfigure script with a directory of configuration files and a scontrol of its own.
struct Reconfigure {
    etc: PathBuf,
    bin: PathBuf,
    /// The port of slurmctld.
    port: u16,
}

impl Reconfigure {
    /// slurmctld was started at `boot`, in the words of date(1).
    fn new(name: &str, boot: &str) -> Self {
        let root = directory(name);
        let it = Self { etc: root.join("etc"), bin: root.join("bin"), port: 0 };
        for path in [&it.etc, &it.bin] {
            fs::create_dir_all(path).unwrap();
        }
        it.update("one");
        std::os::unix::fs::symlink("..data/slurm.conf", it.etc.join("slurm.conf")).unwrap();
        fs::write(it.etc.join("slurm.key"), "secret").unwrap();
        let scontrol = it.bin.join("scontrol");
        let script = format!(
            "#!/bin/sh\ncd \"$(dirname \"$0\")\"\ncase $1 in\n\
             show) echo 'Configuration data'; echo \"BOOT_TIME               = $(date -d '{boot}' +%FT%T)\" ;;\n\
             reconfigure) echo \"scontrol $*\"; [ ! -e refuse ] || {{ echo no; exit 1; }} ;;\nesac\n"
        );
        fs::write(&scontrol, script).unwrap();
        fs::set_permissions(&scontrol, fs::Permissions::from_mode(0o755)).unwrap();
        it
    }

    /// The kubelet updates mounted files by replacing the directory to which their symbolic links point.
    fn update(&self, version: &str) {
        let data = self.etc.join(format!("..{version}"));
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("slurm.conf"), version).unwrap();
        std::os::unix::fs::symlink(format!("..{version}"), self.etc.join("..data_tmp")).unwrap();
        fs::rename(self.etc.join("..data_tmp"), self.etc.join("..data")).unwrap();
    }

    /// Sets whether slurmctld refuses every configuration.
    fn refuse(&self, refuses: bool) {
        let file = self.bin.join("refuse");
        if refuses { fs::write(file, "").unwrap() } else { fs::remove_file(file).unwrap() }
    }

    /// Starts the script; returns its process and its output without times.
    fn start(&self) -> (Child, impl Iterator<Item = String> + use<>) {
        let local = script(&reconfigure())
            .replace("/etc/slurm", self.etc.to_str().unwrap())
            .replace("port=6817", &format!("port={}", self.port))
            .replace("interval=2", "interval=0.1")
            .replace("retry=2", "retry=0");
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let mut child = shell("bash", &local).env("PATH", path).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let without_time = |line: String| line.splitn(4, ':').last().unwrap().trim().to_owned();
        (child, lines.map(without_time))
    }

    fn watching(&self, version: &str) -> String {
        format!("Watching {}, now {}", self.etc.display(), digest(version))
    }
}

#[test]
fn reconfigure_runs_once_per_change_and_retries_on_failure() {
    let it = Reconfigure::new("reconfigure", "tomorrow");
    let (mut child, mut lines) = it.start();
    assert_eq!(lines.next(), Some(it.watching("one")));
    it.refuse(true);
    it.update("two");
    let failed = format!("Reconfigure to {} failed: scontrol reconfigure; no", digest("two"));
    assert_eq!(lines.next(), Some(failed));
    it.refuse(false);
    let applied = lines.find(|line| !line.contains("failed"));
    assert_eq!(applied, Some(format!("Reconfigured to {}", digest("two"))));
    it.update("three");
    assert_eq!(lines.next(), Some(format!("Reconfigured to {}", digest("three"))));
    terminate(&mut child);
}

#[test]
fn restarted_reconfigure_does_not_report_files_that_slurmctld_never_read() {
    let it = Reconfigure::new("reconfigure-restarted", "yesterday");
    let (mut child, mut lines) = it.start();
    assert_eq!(lines.next(), Some(format!("Reconfigured to {}", digest("one"))));
    terminate(&mut child);
    it.refuse(true);
    let (mut child, mut lines) = it.start();
    let failed = format!("Reconfigure to {} failed: scontrol reconfigure; no", digest("one"));
    assert_eq!(lines.next(), Some(failed));
    terminate(&mut child);
}

#[test]
fn reverted_change_is_reported_after_a_failed_reconfigure() {
    let it = Reconfigure::new("reconfigure-reverted", "tomorrow");
    let (mut child, mut lines) = it.start();
    assert_eq!(lines.next(), Some(it.watching("one")));
    it.refuse(true);
    it.update("two");
    assert!(lines.next().unwrap().contains("failed"));
    it.update("one");
    it.refuse(false);
    let applied = lines.find(|line| !line.contains("failed")).unwrap();
    assert!(applied == format!("Reconfigured to {}", digest("one")), "{applied}");
    terminate(&mut child);
}

/// Answers the given number of HTTP requests as a standby, sends a message, and answers the others as the active daemon.
fn serve_readiness(standby_answers: usize) -> (u16, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, taken_over) = channel();
    std::thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap()).lines().next().unwrap().unwrap();
            assert_eq!(request, "GET /readyz HTTP/1.1");
            if count == standby_answers {
                sender.send(()).unwrap();
            }
            let status = if count < standby_answers { "503 Service Unavailable" } else { "204 No Content" };
            write!(stream, "HTTP/1.1 {status}\r\n\r\n").unwrap();
        }
    });
    (port, taken_over)
}

#[test]
fn standby_does_not_reconfigure_until_it_is_in_control() {
    let (port, taken_over) = serve_readiness(3);
    let it = Reconfigure { port, ..Reconfigure::new("reconfigure-standby", "tomorrow") };
    let hosts = |text: &str| format!("SlurmctldHost=a(a.x)\nSlurmctldHost=b(b.x)\n{text}");
    let (mut child, mut lines) = it.start();
    assert_eq!(lines.next(), Some(it.watching("one")));
    it.update(&hosts("A=2"));
    let waits = "slurmctld in this pod is not in control";
    assert_eq!(lines.next(), Some(format!("Not reconfiguring to {}: {waits}", digest(&hosts("A=2")))));
    taken_over.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(lines.next(), Some(format!("Reconfigured to {}", digest(&hosts("A=2")))));
    terminate(&mut child);
}

/// The name of a configuration with this slurm.conf as the only file besides keys.
fn digest(slurm_conf: &str) -> String {
    let files = [("slurm.conf".to_owned(), slurm_conf.as_bytes())].into();
    hash_files(&files)
}
