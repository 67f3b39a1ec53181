//! A cluster that runs: its components and whether they do their work.

use super::components::Component;
use super::exec::attach;
use super::layout::Layout;
use super::profile::Profile;
use super::sandbox::{Sandbox, log_end, output};
use super::wait;
use crate::progress::step;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
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
                    &component.arguments(self.layout),
                )?;
            }
            components.iter().try_for_each(|component| self.await_component(*component))
        })
    }

    /// Whether every component does its work now.
    pub fn check(&self) -> Result<()> {
        let components = self.profile.waves().iter().copied().flatten();
        components.copied().try_for_each(|component| {
            self.ensure_runs(component)?;
            self.check_work(component)
        })
    }

    /// What kubectl answers.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        output(attach(self.layout, &self.sandbox)?.arg("kubectl").args(args))
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
        waited.and_then(|result| result).with_context(|| log_end(self.layout, component.name()))
    }

    fn ensure_runs(&self, component: Component) -> Result<()> {
        ensure!(self.sandbox.runs(&component.program()?)?, "{} is not running", component.name());
        Ok(())
    }

    /// Whether a component does its work, seen by what it does for others.
    fn check_work(&self, component: Component) -> Result<()> {
        match component {
            // The API server is ready only when its store is.
            Component::Etcd => Ok(()),
            Component::Apiserver => self.kubectl(&["get", "--raw", "/readyz"]).map(drop),
            Component::ControllerManager => self.kubectl(&["get", "serviceaccount", "default"]).map(drop),
        }
    }
}
