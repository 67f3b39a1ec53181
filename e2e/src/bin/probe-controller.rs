//! A minimal controller for tests of the shared runtime: it copies each ConfigMap with a label, and the ConfigMap's data
//! can ask it to publish an Event (`event`), to fail (`fail`) or to be slow (`wait`).

use anyhow::Result;
use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use operator_runtime::apply::{self, Applier};
use operator_runtime::events::{EventType, Events, NewEvent};
use operator_runtime::{Class, Classify, Runtime, run};
use std::sync::Arc;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "probe-controller", version)]
struct Args {
    #[command(flatten)]
    runtime: operator_runtime::Args,
    /// The value of the label `probe` on the objects to copy; their copies have this value with the suffix `-copy`.
    #[arg(long)]
    label: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    run("probe-controller", args.runtime, |rt| start(rt, args.label)).await
}

struct Context {
    applier: Applier,
    events: Events,
    copies: Store<ConfigMap>,
    label: String,
}

async fn start(rt: Runtime, label: String) -> Result<()> {
    let labelled = |suffix: &str| watcher::Config::default().labels(&format!("probe={label}{suffix}"));
    rt.for_each_scope(async |scope| {
        let (copies, changes) = scope.cache::<ConfigMap>(labelled("-copy"));
        let controller = scope.controller::<ConfigMap>(labelled("")).owns_stream(changes);
        let (applier, events) = (scope.applier().clone(), scope.events().clone());
        let context = Context { applier, events, copies, label: label.clone() };
        scope.run_controller(controller, reconcile, Arc::new(context)).await;
        Ok(())
    })
    .await
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("writing the copy failed")]
    Write(#[source] apply::Error),
    #[error("failure requested: {0}")]
    Requested(String),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Requested(_) => Class::Transient,
            Self::Write(error) => error.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Requested(_) => "FailureRequested",
            Self::Write(error) => error.category(),
        }
    }
}

async fn reconcile(original: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
    let requested = |key: &str| original.data.as_ref().and_then(|data| data.get(key)).cloned();
    if let Some(note) = requested("event") {
        let (reason, action) = ("EventRequested".into(), "PublishEvent".into());
        let event = NewEvent { type_: EventType::Normal, reason, action, note, related: None };
        context.events.publish(original.as_ref(), event);
        return Ok(Action::await_change());
    }
    if let Some(reason) = requested("fail") {
        return Err(Error::Requested(reason));
    }
    if let Some(seconds) = requested("wait").and_then(|text| text.parse().ok()) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    let copy = build_copy(&original, &context.label);
    let live = context.copies.get(&ObjectRef::from_obj(&copy));
    context.applier.apply(&copy, live.as_deref()).await.map_err(Error::Write)?;
    Ok(Action::await_change())
}

fn build_copy(original: &ConfigMap, label: &str) -> ConfigMap {
    let mut copy = ConfigMap { data: original.data.clone(), ..ConfigMap::default() };
    copy.metadata.name = Some(format!("{}-copy", original.name_any()));
    copy.metadata.namespace = original.namespace();
    copy.metadata.labels = Some([("probe".to_owned(), format!("{label}-copy"))].into());
    copy.metadata.owner_references = original.controller_owner_ref(&()).map(|owner| vec![owner]);
    copy
}
