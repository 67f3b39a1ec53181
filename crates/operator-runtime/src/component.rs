//! Runs the controller of a component: a kind whose children are written from one plan and collected with their owner.

use crate::args::Args;
use crate::error::Classify;
use crate::run::run;
use crate::runtime::Runtime;
use crate::scope::Scope;
use crate::watched::Watched;
use clap::{Command, CommandFactory, FromArgMatches, Parser};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use slinky_api::labels::{APP_NAME, App};
use std::sync::Arc;
use tracing::{Instrument, info_span};

/// The flags of a binary that has none of its own.
#[derive(Parser)]
#[command(version)]
struct CommonFlags {
    #[command(flatten)]
    runtime: Args,
}

/// Parses the common flags and runs a binary that has no flags of its own.
pub async fn run_with_common_flags<F, R>(
    name: &'static str,
    about: &'static str,
    start: F,
) -> anyhow::Result<()>
where
    F: FnOnce(Runtime) -> R,
    R: Future<Output = anyhow::Result<()>>,
{
    let matches = command(name, about).get_matches();
    let flags = CommonFlags::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    run(name, flags.runtime, start).await
}

fn command(name: &'static str, about: &'static str) -> Command {
    CommonFlags::command().name(name).about(about)
}

/// Selects the children of all `K` by the label that names their program.
pub fn children_of<K: App>() -> watcher::Config {
    watcher::Config::default().labels(&format!("{APP_NAME}={}", K::NAME))
}

impl Scope {
    /// Runs a controller until shutdown, see [`Scope::run_controller`]. Each reconcile gets the time, so that decisions
    /// need not read the clock. Objects that are being deleted are not reconciled: garbage collection deletes their
    /// children.
    pub async fn run_component<K, C, E, F, R>(&self, controller: Controller<K>, context: C, reconcile: F)
    where
        K: Watched,
        C: Send + Sync + 'static,
        E: Classify + Send + 'static,
        F: Fn(Arc<K>, Arc<C>, Timestamp) -> R + Copy + Send + 'static,
        R: Future<Output = Result<Action, E>> + Send + 'static,
    {
        let reconcile_unless_deleted = |object: Arc<K>, context: Arc<C>| {
            let span = info_span!("reconcile", namespace = object.namespace(), name = object.name_any());
            let reconciled = async move {
                if object.meta().deletion_timestamp.is_some() {
                    return Ok(Action::await_change());
                }
                #[expect(clippy::disallowed_methods, reason = "the edge: reconciles get the time from here")]
                let now = Timestamp::now();
                reconcile(object, context, now).await
            };
            reconciled.instrument(span)
        };
        self.run_controller(controller, reconcile_unless_deleted, Arc::new(context)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{CommonFlags, command};
    use clap::FromArgMatches;

    #[test]
    fn binary_without_flags_of_its_own_takes_the_common_flags() {
        let mut command = command("token-controller", "Issues tokens");
        let help = command.render_help().to_string();
        assert!(help.starts_with("Issues tokens\n\nUsage: token-controller [OPTIONS]\n"), "{help}");
        assert_eq!(command.render_version(), concat!("token-controller ", env!("CARGO_PKG_VERSION"), "\n"));
        let matches = command.try_get_matches_from(["token-controller", "--workers", "7"]).unwrap();
        assert_eq!(CommonFlags::from_arg_matches(&matches).unwrap().runtime.workers, 7);
    }
}
