//! The namespaces of a cluster and the process that holds them.
//!
//! The holder is the first process of a PID namespace: when it ends, the kernel ends all others of the cluster, and
//! with the last of them go its network and its mounts. Inside, `/var`, `/run` and `/tmp` are the cluster's own, so
//! that every component can use its usual paths, and the machine's root file system is read-only, so that none can
//! leave files elsewhere. Its network has no route to the outside.

use super::layout::{Layout, NODE_ADDRESS, Name, SERVICE_CIDR};
use super::mounts;
use super::processes::{self, MARKER, Process};
use super::wait;
use crate::cache;
use crate::commands::{log_to, output};
use crate::packages::PATH;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xshell::Shell;

/// Reaps orphans and does nothing else.
const HOLDER: &str = "catatonit";

/// Arguments: the node's address and the range of Service addresses. The node's address is on a bridge without ports,
/// since a kernel may lack dummy devices. The route makes Service addresses reachable before they are translated.
const SET_UP_NETWORK: &str = r#"
ip link set lo up
ip link add node0 type bridge
ip address add "$1/24" dev node0
ip link set node0 up
ip route add "$2" dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
"#;

/// A running holder.
pub struct Sandbox {
    name: Name,
    holder: Process,
}

impl Sandbox {
    /// The sandbox of a cluster, if it has one.
    pub fn find(layout: &Layout) -> Result<Option<Self>> {
        let marked = processes::of_cluster(&layout.name)?;
        let is_holder = |process: &Process| process.program().is_some_and(|file| file.ends_with(HOLDER));
        let holder = marked.into_iter().find(is_holder);
        Ok(holder.map(|holder| Self { name: layout.name.clone(), holder }))
    }

    /// Creates the namespaces and sets up mounts and network.
    pub fn start(layout: &Layout) -> Result<Self> {
        let sh = Shell::new()?;
        sh.create_dir(layout.log(""))?;
        for directory in ["var/lib", "var/log", "var/tmp", "var/cache", "tmp"] {
            sh.create_dir(layout.private(directory))?;
        }
        symlink("/run", layout.private("var/run"))?;
        let mut unshare = Command::new("setsid");
        // Unmounts on the machine propagate into the sandbox, not the other way round.
        unshare.args(["--fork", "unshare", "--mount", "--propagation=slave", "--net", "--pid"]);
        unshare.args(["--fork", "--mount-proc", "--kill-child", HOLDER, "-P"]);
        into_background(&mut unshare, layout, "holder")?;
        let sandbox = wait::until(Duration::from_secs(10), || {
            Self::find(layout)?
                .with_context(|| format!("no namespaces were created: {}", log_end(layout, "holder")))
        })?;
        let (cache, private, resolver) = (cache::root()?, layout.private(""), layout.resolv_conf());
        let paths = [cache.as_path(), private.strip_prefix(&cache)?, &resolver];
        sandbox.script("mounting", mounts::SET_UP, &paths)?;
        let addresses = [&NODE_ADDRESS.to_string(), SERVICE_CIDR];
        sandbox.script("setting up the network", SET_UP_NETWORK, &addresses)?;
        Ok(sandbox)
    }

    /// Starts a program that outlives this process, and waits until it is executing.
    pub fn start_program(&self, layout: &Layout, name: &str, program: &Path, args: &[String]) -> Result<()> {
        let mut command = self.enter();
        command.args(["setsid", "--fork"]).arg(program).args(args);
        into_background(&mut command, layout, name)?;
        wait::until(Duration::from_secs(10), || {
            ensure!(self.is_running(program)?, "{name} did not start: {}", log_end(layout, name));
            Ok(())
        })
    }

    /// Whether a program is running in the sandbox outside pods.
    pub fn is_running(&self, program: &Path) -> Result<bool> {
        let program = fs::canonicalize(program).with_context(|| format!("finding {}", program.display()))?;
        let namespace = self.holder.pid_namespace();
        let is_match = |process: &Process| {
            process.program().as_ref() == Some(&program) && process.pid_namespace() == namespace
        };
        Ok(processes::all()?.iter().any(is_match))
    }

    /// The prefix of a command that runs in all namespaces of the cluster.
    pub fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount", "--net", "--pid", "--"]);
        set_environment(&mut command, &self.name);
        command
    }

    /// The path of the network namespace, for commands that need only the cluster's network.
    pub fn network(&self) -> PathBuf {
        self.holder.file("ns/net")
    }

    fn script(&self, what: &'static str, script: &str, args: &[impl AsRef<OsStr>]) -> Result<()> {
        output(self.enter().args(["sh", "-euc", script, "sh"]).args(args)).context(what).map(drop)
    }
}

/// The last lines of a component's log.
pub fn log_end(layout: &Layout, component: &str) -> String {
    let path = layout.log(component);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!("{} ends with:\n{}", path.display(), lines[lines.len().saturating_sub(5)..].join("\n"))
}

/// Runs a command that forks, with the marker of the cluster and its output in a log.
fn into_background(command: &mut Command, layout: &Layout, name: &str) -> Result<()> {
    let path = layout.log(name);
    let log = File::options().create(true).append(true).open(&path);
    let log = log.with_context(|| format!("opening {}", path.display()))?;
    set_environment(command, &layout.name);
    let status = log_to(command, log)?.current_dir("/").status();
    let status = status.with_context(|| format!("starting {name}"))?;
    ensure!(status.success(), "{name} did not start: {}", log_end(layout, name));
    Ok(())
}

/// Clears the caller's environment, and sets the marker of the cluster.
fn set_environment(command: &mut Command, name: &Name) {
    command.env_clear().env("PATH", PATH).env("HOME", "/tmp").env(MARKER, name.to_string());
}
