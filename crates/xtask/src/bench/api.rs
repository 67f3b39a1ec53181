//! Requests to the API server. They go through one `kubectl proxy`, which holds the credentials, so that a measurement
//! is not disturbed by a new process for every look.

use super::background::Background;
use crate::cluster::{LocalCluster, until};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long the proxy may take to start.
const START: Duration = Duration::from_secs(30);

/// The API server of a cluster.
#[derive(Clone)]
pub struct Api {
    socket: PathBuf,
}

impl Api {
    /// Starts the proxy and waits until requests come through, which they do for as long as it lives.
    pub fn start(cluster: &LocalCluster) -> Result<(Self, Background)> {
        let socket = cluster.layout.dir.join("proxy.sock");
        let mut command = cluster.command("kubectl");
        command.arg("proxy").arg("--unix-socket").arg(&socket);
        let proxy = Background::start(&mut command, cluster.layout.log("kubectl-proxy"))?;
        let api = Self { socket };
        until(START, || api.send("GET", "/readyz", &[], ""))?;
        Ok((api, proxy))
    }

    /// Changes fields of the object at `path` and returns the result.
    pub fn patch(&self, path: &str, fields: &Value) -> Result<Value> {
        let content = [("Content-Type", "application/merge-patch+json")];
        Ok(serde_json::from_reader(self.send("PATCH", path, &content, &fields.to_string())?)?)
    }

    /// What becomes of the objects at `path` that `query` selects, one event per line, for as long as the API server
    /// likes. With a `version` it begins behind that, without one with all that exists.
    pub fn watch(
        &self,
        path: &str,
        query: &str,
        accept: &str,
        version: &str,
    ) -> Result<impl BufRead + use<>> {
        let path = format!("{path}?watch=true&resourceVersion={version}{query}");
        self.send("GET", &path, &[("Accept", accept)], "")
    }

    /// The body of a successful response. HTTP/1.0 has no chunks: the body is all that follows.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(&self.socket).context("no proxy")?;
        let mut head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n");
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut response = BufReader::new(stream);
        let mut status = String::new();
        response.read_line(&mut status)?;
        skip_headers(&mut response)?;
        if status.split(' ').nth(1) == Some("200") {
            return Ok(response);
        }
        let mut answer = String::new();
        response.read_to_string(&mut answer)?;
        bail!("{method} {path}: {} {}", status.trim(), answer.trim());
    }
}

fn skip_headers(response: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        ensure!(response.read_line(&mut line)? > 0, "a response that ends in its headers");
    }
    Ok(())
}
