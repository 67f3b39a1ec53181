//! Finds and ends processes of a cluster.
//!
//! A process belongs to a cluster if its environment has the marker. The marker exists from the start of the process, and
//! unlike a file it cannot be missing or stale. Processes in pods lack it, but share the holder's PID namespace.

use super::layout::Name;
use super::wait;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The environment variable that marks a process as part of a cluster.
pub const MARKER: &str = "SLURM_OPERATOR_CLUSTER";

/// A process, by its id as seen from outside the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(Pid);

impl Process {
    /// The process id as a number, for commands such as nsenter.
    pub fn id(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// A file in the process's directory of procfs.
    pub fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.id()))
    }

    /// The file that the process executes.
    pub fn program(self) -> Option<PathBuf> {
        fs::read_link(self.file("exe")).ok()
    }

    /// The PID namespace the process is in.
    pub fn pid_namespace(self) -> Option<PathBuf> {
        fs::read_link(self.file("ns/pid")).ok()
    }

    fn has_ended(self) -> bool {
        fs::read_to_string(self.file("stat")).map_or(true, |stat| is_zombie(&stat))
    }
}

/// All processes of the machine.
pub fn all() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").context("reading /proc")?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(ids.filter_map(|id| Pid::from_raw(id).map(Process)).collect())
}

/// The marked processes of a cluster, without this one.
pub fn of_cluster(name: &Name) -> Result<Vec<Process>> {
    let marker = format!("{MARKER}={name}");
    let own = rustix::process::getpid();
    let is_marked = |process: &Process| {
        fs::read(process.file("environ")).is_ok_and(|environment| {
            environment.split(|byte| *byte == 0).any(|line| line == marker.as_bytes())
        })
    };
    Ok(all()?.into_iter().filter(|process| process.0 != own && is_marked(process)).collect())
}

/// Ends all processes of a cluster, including those that start meanwhile, and waits until they have ended.
///
/// Those in its PID namespace end before those outside, which are their parents and reap them. Else they could remain as
/// zombies until the machine's init process reaps them.
pub fn end(name: &Name) -> Result<()> {
    let own_namespace = Process(rustix::process::getpid()).pid_namespace();
    loop {
        let (outside, inside): (Vec<_>, Vec<_>) =
            of_cluster(name)?.into_iter().partition(|process| process.pid_namespace() == own_namespace);
        match (&inside[..], &outside[..]) {
            ([], []) => return Ok(()),
            ([], outside) => kill(outside)?,
            (inside, _) => kill(inside)?,
        }
    }
}

/// Kills processes and waits until they have ended; the first process of a PID namespace ends after all others.
fn kill(processes: &[Process]) -> Result<()> {
    for process in processes {
        match kill_process(process.0, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("killing process {}", process.id())),
        }
    }
    wait::until(Duration::from_secs(30), || match processes.iter().find(|process| !process.has_ended()) {
        Some(process) => bail!("process {} has not ended", process.id()),
        None => Ok(()),
    })
}

/// Whether a line of `/proc/*/stat` is of a process that has ended but was not reaped. The state follows the program's
/// name, which is in parentheses and may contain any character.
fn is_zombie(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::is_zombie;

    #[test]
    fn state_is_parsed_after_any_program_name() {
        assert!(is_zombie("7 (a) Z) Z 1 7 7 0"));
        assert!(!is_zombie("7 (a) Z x) S 1 7 7 0"));
    }
}
