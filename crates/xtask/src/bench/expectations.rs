//! A running expectations service, and what its clients need to call it.

use super::background::Background;
use crate::cluster::LocalCluster;
use crate::commands::{self, output};
use anyhow::{Context, Result};
use serde_json::json;
use std::fs;
use std::io::stderr;
use std::path::PathBuf;
use std::process::Command;

/// The package and the binary.
pub const SERVICE: &str = "expectations";
/// The account of the replicas, in the namespace of the service.
const ACCOUNT: &str = "replicas";
/// The audience of their tokens.
const AUDIENCE: &str = "expectations.slinky.slurm.net";
/// Port of the service, in the network of the cluster.
const PORT: u16 = 8443;
/// The core that the service runs on.
const CORE: &str = "0";
/// The core that its load comes from.
pub const OTHER_CORE: &str = "1";

/// A running service in the namespace `default`.
pub struct Expectations<'a> {
    /// Its process.
    pub process: Background,
    cluster: &'a LocalCluster,
    binary: PathBuf,
    token: PathBuf,
    authorities: PathBuf,
}

impl<'a> Expectations<'a> {
    /// Starts the service with further flags, and waits for its certificate.
    pub fn start(cluster: &'a LocalCluster, binary: PathBuf, flags: &[&str]) -> Result<Self> {
        let account =
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT } });
        cluster.apply("default", &account.to_string())?;
        let mut command = cluster.command("taskset");
        command.args(["--cpu-list", CORE]).arg(&binary);
        command.args(["--health-addr=0", "--metrics-addr=0"]).args(flags);
        command.arg(format!("--listen-addr=127.0.0.1:{PORT}"));
        command.arg(format!("--service-accounts=default/{ACCOUNT}"));
        let log = cluster.programs()?.join("bench-expectations.log");
        let process = Background::start(&mut command, log)?;
        let authorities = "configmap/expectations-ca";
        // One at a time: kubectl waits for the creation of a single object only.
        for object in [authorities, "secret/expectations-tls"] {
            let mut wait = cluster.command("kubectl");
            wait.args(["wait", "--for=create", "--timeout=60s", object]);
            commands::run(wait.stdout(stderr()))?;
        }
        let mut get = cluster.command("kubectl");
        get.args(["get", authorities, "--output", r"jsonpath={.data.ca\.crt}"]);
        let authorities = write(cluster, "expectations-ca.crt", &output(&mut get)?)?;
        let mut create = cluster.command("kubectl");
        create.args(["create", "token", ACCOUNT, "--duration=1h", "--audience", AUDIENCE]);
        let token = write(cluster, "expectations-token", &output(&mut create)?)?;
        Ok(Self { process, cluster, binary, token, authorities })
    }

    /// Its address.
    pub fn endpoint() -> String {
        format!("https://localhost:{PORT}")
    }

    /// Adds the flags with a client's credentials, whose names begin with `prefix`.
    pub fn authorize<'c>(&self, client: &'c mut Command, prefix: &str) -> &'c mut Command {
        client.arg(format!("--{prefix}token-file")).arg(&self.token);
        client.arg(format!("--{prefix}ca-file")).arg(&self.authorities)
    }

    /// Its status, as JSON.
    pub fn status(&self) -> Result<String> {
        let mut command = self.cluster.command(&self.binary);
        command.args(["status", "--output=json", "--endpoint", &Self::endpoint()]);
        output(self.authorize(&mut command, ""))
    }
}

fn write(cluster: &LocalCluster, name: &str, content: &str) -> Result<PathBuf> {
    let file = cluster.layout.dir.join(name);
    fs::write(&file, content).with_context(|| file.display().to_string())?;
    Ok(file)
}
