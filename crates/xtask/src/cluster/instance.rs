//! A running cluster: its components and their health.

use super::components::Component;
use super::exec::attach;
use super::layout::{API_SERVICE_ADDRESS, Layout};
use super::profile::Profile;
use super::sandbox::{Sandbox, log_end};
use super::{manifests, wait};
use crate::commands::output;
use crate::progress::step;
use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use xshell::Shell;

/// Timeout for the start of a component on a slow and busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// A cluster whose holder is running.
pub struct Cluster<'a> {
    /// Its files.
    pub layout: &'a Layout,
    /// Its profile.
    pub profile: Profile,
    /// Its namespaces.
    pub sandbox: Sandbox,
}

impl<'a> Cluster<'a> {
    /// The cluster, if it was started completely and its holder is running.
    pub fn find(layout: &'a Layout) -> Result<Option<Self>> {
        let Ok(profile) = fs::read_to_string(layout.completed()) else { return Ok(None) };
        let Ok(profile) = Profile::from_str(&profile, false) else { return Ok(None) };
        Ok(Sandbox::find(layout)?.map(|sandbox| Self { layout, profile, sandbox }))
    }

    /// Starts components in parallel and waits until all of them are healthy.
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
            components.iter().try_for_each(|component| self.wait_until_healthy(*component))
        })
    }

    /// Fails unless every component is running and healthy.
    pub fn check(&self) -> Result<()> {
        self.profile.components().try_for_each(|component| {
            self.ensure_running(component)?;
            self.check_health(component)
        })
    }

    /// Standard output of kubectl.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        output(attach(self.layout, &self.sandbox)?.arg("kubectl").args(args))
    }

    /// Imports the image archives that are missing on the node.
    pub fn import_images(&self, archives: &[PathBuf]) -> Result<()> {
        let path = self.layout.imported();
        let mut imported = fs::read_to_string(&path).unwrap_or_default();
        for archive in archives {
            let archive = archive.display().to_string();
            if imported.lines().any(|line| line == archive) {
                continue;
            }
            step(format!("import {archive}"), || {
                output(self.sandbox.enter().args(["ctr", "--namespace=k8s.io", "image", "import", &archive]))
            })?;
            imported.extend([&archive, "\n"]);
            fs::write(&path, &imported).context("recording the imported images")?;
        }
        Ok(())
    }

    /// Creates missing simulated nodes up to `count`, and waits until all nodes are ready.
    pub fn simulate_nodes(&self, count: usize) -> Result<()> {
        let present = self.kubectl(&["get", "nodes", "--output", "name"])?;
        let missing = manifests::simulated_nodes(count, &present);
        if missing.is_empty() {
            return Ok(());
        }
        step(format!("simulate {} more nodes", missing.len()), || {
            self.create("nodes.json", &missing)?;
            wait::until(START_TIMEOUT, || self.ensure_nodes_ready())
        })
    }

    /// Creates objects.
    pub fn create(&self, file: &str, objects: &[Value]) -> Result<()> {
        let path = self.layout.config(file);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        Shell::new()?.write_file(&path, list.to_string())?;
        self.kubectl(&["create", "--filename", &path.display().to_string()]).map(drop)
    }

    /// Waits until a component is healthy; fails at once if it has ended.
    fn wait_until_healthy(&self, component: Component) -> Result<()> {
        let waited = wait::until(START_TIMEOUT, || match self.check_health(component) {
            Ok(()) => Ok(Ok(())),
            Err(problem) => match self.ensure_running(component) {
                Ok(()) => Err(problem),
                Err(ended) => Ok(Err(ended)),
            },
        });
        waited
            .and_then(|result| result)
            .map_err(|problem| anyhow!("{problem:#}; {}", log_end(self.layout, component.name())))
    }

    fn ensure_running(&self, component: Component) -> Result<()> {
        let program = component.program()?;
        ensure!(self.sandbox.is_running(&program)?, "{} is not running", program.display());
        Ok(())
    }

    /// Checks a component by its effect on other components.
    fn check_health(&self, component: Component) -> Result<()> {
        let answer = match component {
            // The readiness of the API server includes etcd; the others have no effect of their own to check.
            Component::Etcd
            | Component::Scheduler
            | Component::SchedulerOnRequest
            | Component::Kwok
            | Component::VolumeProvisioner => return Ok(()),
            Component::Apiserver => self.kubectl(&["get", "--raw", "/readyz"]),
            Component::ControllerManager | Component::ControllerManagerWithoutPodGc => {
                self.kubectl(&["get", "serviceaccount", "default"])
            }
            Component::Containerd => output(self.sandbox.enter().args(["ctr", "version"])),
            Component::Kubelet => return self.ensure_nodes_ready(),
            Component::Proxy => {
                let server = format!("--server=https://{API_SERVICE_ADDRESS}");
                self.kubectl(&[&server, "get", "--raw", "/readyz"])
            }
            Component::Dns => output(self.sandbox.enter().args(["getent", "hosts", "kubernetes.default"]))
                .context("DNS does not resolve kubernetes.default"),
        };
        answer.map(drop)
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
