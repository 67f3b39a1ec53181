//! A cluster that runs: its components and whether they do their work.

use super::components::Component;
use super::exec::attach;
use super::layout::{API_SERVICE_ADDRESS, Layout};
use super::profile::Profile;
use super::sandbox::{Sandbox, log_end, output};
use super::{manifests, wait};
use crate::images;
use crate::progress::step;
use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// How long a component may take until it works, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// A cluster whose holder runs.
pub struct Cluster<'a> {
    /// Its files.
    pub layout: &'a Layout,
    /// What it is for.
    pub profile: Profile,
    /// Its namespaces.
    pub sandbox: Sandbox,
}

impl<'a> Cluster<'a> {
    /// The cluster, if it was started completely and its holder runs.
    pub fn find(layout: &'a Layout) -> Result<Option<Self>> {
        let Ok(profile) = fs::read_to_string(layout.completed()) else { return Ok(None) };
        let Ok(profile) = Profile::from_str(&profile, false) else { return Ok(None) };
        Ok(Sandbox::find(layout)?.map(|sandbox| Self { layout, profile, sandbox }))
    }

    /// Starts components side by side and returns when all of them do their work.
    pub fn start(&self, components: &[Component]) -> Result<()> {
        let names: Vec<_> = components.iter().map(|component| component.name()).collect();
        step(format!("start {}", names.join(", ")), || {
            for component in components {
                self.sandbox.start_program(
                    self.layout,
                    component.name(),
                    &component.program()?,
                    &component.arguments(self.layout)?,
                )?;
            }
            components.iter().try_for_each(|component| self.await_component(*component))
        })
    }

    /// Whether every component does its work now.
    pub fn check(&self) -> Result<()> {
        self.profile.components().try_for_each(|component| {
            self.ensure_runs(component)?;
            self.check_work(component)
        })
    }

    /// What kubectl answers.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        output(attach(self.layout, &self.sandbox)?.arg("kubectl").args(args))
    }

    /// Imports images that are not on the node yet.
    pub fn import_images(&self) -> Result<()> {
        let path = self.layout.imported();
        let mut imported = fs::read_to_string(&path).unwrap_or_default();
        for archive in images::archives()? {
            let archive = archive.display().to_string();
            if imported.lines().any(|line| line == archive) {
                continue;
            }
            step(format!("import {archive}"), || {
                output(self.sandbox.enter().args(["ctr", "--namespace=k8s.io", "image", "import", &archive]))
            })?;
            imported.extend([&archive, "\n"]);
            fs::write(&path, &imported).context("noting the imported images")?;
        }
        Ok(())
    }

    /// Adds simulated nodes until there are `count`, and waits until all are ready.
    pub fn simulate_nodes(&self, count: usize) -> Result<()> {
        let present = self.kubectl(&["get", "nodes", "--output", "name"])?;
        let missing = manifests::simulated_nodes(count, &present);
        if missing.is_empty() {
            return Ok(());
        }
        step(format!("simulate {} more nodes", missing.len()), || {
            self.create("nodes.json", &missing)?;
            wait::until(PATIENCE, || self.ensure_nodes_ready())
        })
    }

    /// Creates objects.
    pub fn create(&self, file: &str, objects: &[Value]) -> Result<()> {
        let path = self.layout.config(file);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&path, list.to_string()).with_context(|| format!("writing {}", path.display()))?;
        self.kubectl(&["create", "--filename", &path.display().to_string()]).map(drop)
    }

    /// Waits until a component does its work, and gives up at once when it has ended.
    fn await_component(&self, component: Component) -> Result<()> {
        let waited = wait::until(PATIENCE, || match self.check_work(component) {
            Ok(()) => Ok(Ok(())),
            Err(problem) => match self.ensure_runs(component) {
                Ok(()) => Err(problem),
                Err(ended) => Ok(Err(ended)),
            },
        });
        waited
            .and_then(|result| result)
            .map_err(|problem| anyhow!("{problem:#}; {}", log_end(self.layout, component.name())))
    }

    fn ensure_runs(&self, component: Component) -> Result<()> {
        let program = component.program()?;
        ensure!(self.sandbox.runs(&program)?, "{} is not running", program.display());
        Ok(())
    }

    /// Whether a component does its work, seen by what it does for others.
    fn check_work(&self, component: Component) -> Result<()> {
        match component {
            // The API server is ready only when its store is; of the others' work nothing is seen on its own.
            Component::Etcd
            | Component::Scheduler
            | Component::SchedulerOnRequest
            | Component::Kwok
            | Component::VolumeProvisioner => Ok(()),
            Component::Apiserver => self.kubectl(&["get", "--raw", "/readyz"]).map(drop),
            Component::ControllerManager => self.kubectl(&["get", "serviceaccount", "default"]).map(drop),
            Component::Containerd => output(self.sandbox.enter().args(["ctr", "version"])).map(drop),
            Component::Kubelet => self.ensure_nodes_ready(),
            Component::Proxy => {
                let server = format!("--server=https://{API_SERVICE_ADDRESS}");
                self.kubectl(&[&server, "get", "--raw", "/readyz"]).map(drop)
            }
            Component::Dns => {
                let lookup = ["getent", "hosts", "kubernetes.default"];
                output(self.sandbox.enter().args(lookup))
                    .context("DNS does not know kubernetes.default")
                    .map(drop)
            }
        }
    }

    fn ensure_nodes_ready(&self) -> Result<()> {
        let status = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;
        let statuses = self.kubectl(&["get", "nodes", "--output", status])?;
        let ready = statuses.split(' ').filter(|status| *status == "True").count();
        let nodes = self.kubectl(&["get", "nodes", "--output", "name"])?.lines().count();
        ensure!(nodes > 0 && ready == nodes, "{ready} of {nodes} nodes are ready");
        Ok(())
    }
}
