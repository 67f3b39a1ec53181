//! Binaries under test as processes: start, health and metrics requests, stop.

use anyhow::{Context, Result, bail};
use kube::config::{AuthInfo, Kubeconfig};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

/// Timeout of a request to the health address.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A running binary. It is killed when it goes out of scope.
pub struct Process {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Process {
    /// Starts a controller that is the only candidate for its Lease: it does not wait until that of a killed predecessor
    /// expires, and processes of several tests are active at the same time.
    pub fn start_elected(program: impl AsRef<Path>, args: &[&str], log: &Path) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let name = log.file_stem().unwrap_or_default().to_string_lossy();
        let lease = format!("{name}-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        Self::start(program, &[args, &["--leader-elect-lease", &lease]].concat(), log)
    }

    /// Starts a binary with the common flags for its addresses. Its standard error goes to the file `log`.
    pub fn start(program: impl AsRef<Path>, args: &[&str], log: &Path) -> Result<Self> {
        Self::start_with_env(program, args, &[], log)
    }

    /// As [`Process::start`], with additional environment variables.
    pub fn start_with_env(
        program: impl AsRef<Path>,
        args: &[&str],
        env: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self> {
        let program = program.as_ref();
        let address = free_address()?;
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let child = Command::new(program)
            .args(["--health-addr", &address.to_string(), "--metrics-addr", &address.to_string()])
            .args(args)
            .envs(env.iter().copied())
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { child, address, log: log.to_owned() })
    }

    /// Status and body of a GET request to its health address.
    pub fn fetch(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.address, REQUEST_TIMEOUT)
            .with_context(|| format!("connecting; see {}", self.log.display()))?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, body) = response.split_once("\r\n\r\n").context("no HTTP response")?;
        let status = head.split(' ').nth(1).context("no HTTP status")?.parse()?;
        Ok((status, body.to_owned()))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file with its log.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Its log.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(&self.log).with_context(|| self.log.display().to_string())
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        self.signal("TERM")
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status()?;
        if !status.success() {
            bail!("kill ended with {status}");
        }
        Ok(())
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The exit status, once the process has ended.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A binary of the workspace, from the target directory of the running test.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = binary_directory()?.join(name);
    if !path.is_file() {
        bail!("{} is not built: run `cargo build --bins`", path.display());
    }
    Ok(path)
}

/// A file below cargo's directory for files of tests, kept after the test.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let directory = binary_directory()?.with_file_name("tmp");
    std::fs::create_dir_all(&directory)?;
    Ok(directory.join(name))
}

/// The directory of the built binaries.
fn binary_directory() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    Ok(test.parent().and_then(Path::parent).context("the test is not in a target directory")?.to_owned())
}

/// A local address on which no process listens. Its port is not one that Linux gives to connections, so it remains free until
/// the caller's process listens.
pub fn free_address() -> Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, NEXT.fetch_add(1, Ordering::Relaxed)));
        match TcpListener::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return Ok(bound?.local_addr()?),
        }
    }
}

/// Writes a kubeconfig for the same cluster with another identity.
pub fn kubeconfig_with_token(token: &str, path: PathBuf) -> Result<PathBuf> {
    kubeconfig_of_pod(token, None, path)
}

/// Writes a kubeconfig for the same cluster with the identity of a service account, and its namespace.
pub fn kubeconfig_of_pod(token: &str, namespace: Option<&str>, path: PathBuf) -> Result<PathBuf> {
    let mut config = Kubeconfig::read()?;
    for context in config.contexts.iter_mut().filter_map(|context| context.context.as_mut()) {
        context.namespace = namespace.map(str::to_owned).or(context.namespace.take());
    }
    for user in &mut config.auth_infos {
        user.auth_info = Some(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() });
    }
    serde_json::to_writer(File::create(&path)?, &config)?;
    Ok(path)
}
