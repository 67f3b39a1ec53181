//! Requests to the API server, through one `kubectl proxy` with the credentials, so that no process has to be started
//! during a measurement.

use super::background::Background;
use crate::cluster::{LocalCluster, until};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Timeout for the start of the proxy.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The API server of a cluster.
#[derive(Clone)]
pub struct Api {
    socket: PathBuf,
}

impl Api {
    /// Starts the proxy and waits until it forwards requests. It ends when the returned process is dropped.
    pub fn start(cluster: &LocalCluster) -> Result<(Self, Background)> {
        let socket = cluster.layout.dir.join("proxy.sock");
        let mut command = cluster.command("kubectl");
        command.arg("proxy").arg("--unix-socket").arg(&socket);
        let proxy = Background::start(&mut command, cluster.layout.log("kubectl-proxy"))?;
        let api = Self { socket };
        until(START_TIMEOUT, || api.send("GET", "/readyz", "Accept: */*", ""))?;
        Ok((api, proxy))
    }

    /// Merges fields into the object at `path` and returns the result.
    pub fn patch(&self, path: &str, fields: &Value) -> Result<Value> {
        let content = "Content-Type: application/merge-patch+json";
        Ok(serde_json::from_reader(self.send("PATCH", path, content, &fields.to_string())?)?)
    }

    /// Watches the objects at `path` that `query` selects: one event per line, until the API server ends the watch. It
    /// starts after `version`, or with all existing objects if that is empty.
    pub fn watch(
        &self,
        path: &str,
        query: &str,
        accept: &str,
        version: &str,
    ) -> Result<impl BufRead + use<>> {
        let path = format!("{path}?watch=true&resourceVersion={version}{query}");
        self.send("GET", &path, &format!("Accept: {accept}"), "")
    }

    /// The body of a successful response. HTTP/1.0 has no chunks: the body is the rest of the stream.
    fn send(&self, method: &str, path: &str, header: &str, body: &str) -> Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.socket).context("connecting to the proxy")?;
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\n{header}\r\n")?;
        write!(stream, "Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut response = BufReader::new(stream);
        let mut status = String::new();
        response.read_line(&mut status)?;
        skip_headers(&mut response)?;
        if status.split(' ').nth(1) == Some("200") {
            return Ok(response);
        }
        let mut body = String::new();
        response.read_to_string(&mut body)?;
        bail!("{method} {path}: {} {}", status.trim(), body.trim());
    }
}

fn skip_headers(response: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        ensure!(response.read_line(&mut line)? > 0, "the response ends within its headers");
    }
    Ok(())
}
