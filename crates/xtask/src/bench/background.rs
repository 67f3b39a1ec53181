//! Background processes of a measurement.

use crate::commands::log_to;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};

/// A process with its output in a file. It is killed when it goes out of scope.
pub struct Background {
    child: Child,
    log: PathBuf,
}

impl Background {
    /// Starts a command with its output in the file `log`.
    pub fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let child = log_to(command, output)?.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self { child, log })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the program ended with {status}, see {}", self.log.display()),
            None => Ok(()),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
