//! Runs clusters through the command line, and inspects the machine for their processes, mounts and files.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The program under test.
pub const XTASK: &str = env!("CARGO_BIN_EXE_xtask");

/// Whether the tests run as root, which clusters need; if not, prints that past the test harness.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = writeln!(std::io::stderr(), "skipped, not root: tests of real clusters");
    }
    is_root
}

/// The program under test with arguments.
pub fn xtask(args: &[&str]) -> Command {
    let mut command = Command::new(XTASK);
    command.args(args);
    command
}

/// The output of a command on both streams, as an error if it fails.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    let text = text.trim().to_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// Repeats a check until it passes, for at most 30 s.
#[expect(clippy::disallowed_methods, reason = "the pause between two checks of a condition with a deadline")]
pub fn wait_for(what: &str, mut check: impl FnMut() -> Result<(), String>) {
    let pause = Duration::from_millis(100);
    let mut last_error = String::new();
    for _ in 0..300 {
        match check() {
            Ok(()) => return,
            Err(error) => last_error = error,
        }
        std::thread::sleep(pause);
    }
    panic!("timed out after 30 s waiting for {what}: {last_error}");
}

/// A cluster that is removed when it goes out of scope.
pub struct Cluster {
    /// Its name.
    pub name: &'static str,
}

impl Cluster {
    /// A cluster that does not exist yet: one of an earlier test run is removed.
    pub fn new(name: &'static str) -> Self {
        let cluster = Self { name };
        cluster.down();
        cluster
    }

    pub fn up(&self, profile: &str) -> String {
        run(&mut xtask(&["cluster", "up", "--name", self.name, "--profile", profile])).unwrap()
    }

    pub fn down(&self) {
        run(&mut xtask(&["cluster", "down", "--name", self.name])).unwrap();
    }

    /// A command inside the cluster's network.
    pub fn exec(&self, command: &[&str]) -> Command {
        let mut exec = xtask(&["cluster", "exec", "--name", self.name, "--"]);
        exec.args(command);
        exec
    }

    pub fn kubectl(&self, args: &[&str]) -> String {
        run(self.exec(&["kubectl"]).args(args)).unwrap()
    }

    /// A file of the cluster.
    pub fn file(&self, name: &str) -> PathBuf {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"), PathBuf::from);
        cache.join("slurm-operator/clusters").join(self.name).join(name)
    }

    /// The namespaces of the cluster's API server.
    pub fn namespaces(&self) -> [Namespace; 3] {
        let server = self.process("kube-apiserver");
        ["net", "mnt", "pid"].map(|kind| Namespace::open(&server.join("ns").join(kind)))
    }

    /// Kills one of the cluster's programs.
    pub fn kill(&self, program: &str) {
        let process = self.process(program);
        let id = process.file_name().and_then(OsStr::to_str).unwrap().parse().unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
        wait_for("a killed process to end", || {
            if link(&process.join("exe")).is_some() { Err(process.display().to_string()) } else { Ok(()) }
        });
    }

    fn process(&self, program: &str) -> PathBuf {
        let runs_program =
            |process: &PathBuf| link(&process.join("exe")).is_some_and(|file| file.ends_with(program));
        self.processes().into_iter().find(runs_program).unwrap()
    }

    fn processes(&self) -> Vec<PathBuf> {
        let marker = format!("SLURM_OPERATOR_CLUSTER={}", self.name);
        let is_marked = |process: &PathBuf| {
            fs::read(process.join("environ")).is_ok_and(|environment| {
                environment.split(|byte| *byte == 0).any(|line| line == marker.as_bytes())
            })
        };
        all_processes().filter(is_marked).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = run(&mut xtask(&["cluster", "down", "--name", self.name]));
    }
}

/// A namespace, kept open so that its number is not reused.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    _file: File,
}

impl Namespace {
    fn open(path: &Path) -> Self {
        Self { _file: File::open(path).unwrap(), name: link(path).unwrap() }
    }

    /// The command lines of all processes in it.
    pub fn processes(&self) -> Vec<String> {
        let is_inside = |process: &PathBuf| {
            let mut kinds = ["net", "mnt", "pid"].iter();
            kinds.any(|kind| link(&process.join("ns").join(kind)).as_ref() == Some(&self.name))
        };
        let command_line = |process: PathBuf| fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        all_processes().filter(is_inside).map(command_line).collect()
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

fn all_processes() -> impl Iterator<Item = PathBuf> {
    let is_process =
        |path: &PathBuf| path.file_name().and_then(OsStr::to_str).unwrap().parse::<u32>().is_ok();
    list(Path::new("/proc")).into_iter().filter(is_process)
}

fn link(path: &Path) -> Option<String> {
    fs::read_link(path).ok()?.to_str().map(ToOwned::to_owned)
}

fn list(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Everything on the machine that a cluster could change, one line per fact.
pub struct Footprint(BTreeSet<String>);

impl Footprint {
    /// Inspects the machine, without other clusters, which may start and end meanwhile.
    pub fn take(cluster: &Cluster) -> Self {
        let own_group = format!("slurm-operator.{}", cluster.name);
        let is_ours = |group: &PathBuf| {
            let name = group.file_name().and_then(OsStr::to_str).unwrap();
            group.is_dir() && (name == own_group || !name.starts_with("slurm-operator."))
        };
        let clusters = cluster.file("").parent().unwrap().to_owned();
        let is_other_cluster =
            |file: &PathBuf| file.parent() == Some(&clusters) && !file.ends_with(cluster.name);
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let places = [
            "/",
            "/etc",
            "/etc/systemd/system/multi-user.target.wants",
            "/opt",
            "/run/netns",
            "/sys/class/net",
            "/usr/libexec",
            "/var",
            "/var/lib",
            "/var/log",
        ];
        let places =
            places.map(PathBuf::from).into_iter().chain([home.join(".kube"), home, clusters.clone()]);
        let files = places.flat_map(|place| list(&place)).filter(|file| !is_other_cluster(file));
        let groups = hierarchies().into_iter().flat_map(|root| list(&root)).filter(is_ours);
        let paths = cluster.processes().into_iter().chain(files).chain(groups);
        let settings = ["/proc/sys/kernel", "/proc/sys/vm"].map(|part| kernel_settings(Path::new(part)));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().map(ToOwned::to_owned);
        Self(
            mounts
                .chain(paths.map(|path| path.display().to_string()))
                .chain(settings.into_iter().flatten())
                .collect(),
        )
    }

    /// The facts that have changed since an earlier footprint.
    pub fn changes_since(&self, before: &Self) -> String {
        let removed = before.0.difference(&self.0).map(|fact| format!("- {fact}\n"));
        removed.chain(self.0.difference(&before.0).map(|fact| format!("+ {fact}\n"))).collect()
    }
}

/// The roots of control groups: one with version 2 alone, else one per controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() { vec![root] } else { list(&root) }
}

/// The settings of the machine's kernel that can be changed, with their values. The kernel itself changes two of them.
fn kernel_settings(directory: &Path) -> Vec<String> {
    let is_setting = |path: &PathBuf| {
        let is_writable = fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o200 != 0);
        is_writable && !["ns_last_pid", "perf_event_max_sample_rate"].iter().any(|name| path.ends_with(name))
    };
    let setting = |path: PathBuf| Some(format!("{} = {:?}", path.display(), fs::read_to_string(&path).ok()?));
    let (directories, files): (Vec<_>, Vec<_>) = list(directory).into_iter().partition(|path| path.is_dir());
    let settings = files.into_iter().filter(is_setting).filter_map(setting);
    settings.chain(directories.iter().flat_map(|path| kernel_settings(path))).collect()
}
