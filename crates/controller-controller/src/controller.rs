//! Watches Controllers and everything that their slurmctld depends on, and reconciles one Controller at a time.

use crate::active::{self, Actives};
use crate::build::{CHECK_APP, ServiceMonitor, node_count};
use crate::execute::{Monitoring, Outcome, execute};
use crate::observe::observe;
use crate::plan::plan;
use crate::rollout::{Pending, Step};
use crate::status::{is_unsettled, news, status};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use operator_runtime::events::{EventType, NewEvent};
use operator_runtime::{
    Class, Classify, PerObject, RawObject, Runtime, Scope, StepErrors, apply, changed_by, referrers,
    spec_changes,
};
use slinky_api::conditions::ConditionStatus;
use slinky_api::labels::{APP_INSTANCE, APP_NAME, App};
use slinky_api::v1beta1::{Accounting, Controller, ControllerSpec, ControllerStatus, NodeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::instrument;

/// When to ask again what became of a configuration.
const SOON: Duration = Duration::from_secs(2);
/// When to see again whether ServiceMonitors are installed.
const LATER: Duration = Duration::from_mins(5);

/// What a reconcile works with.
pub struct Context {
    /// The runtime, and the namespaces that are watched.
    pub scope: Scope,
    /// The Accountings that Controllers refer to.
    pub accountings: Store<Accounting>,
    /// The NodeSets that refer to Controllers.
    pub node_sets: Store<NodeSet>,
    /// The Services of slurmctld.
    pub services: Store<RawObject<Service>>,
    /// The ConfigMaps that are made here.
    pub config_maps: Store<ConfigMap>,
    /// The StatefulSets of slurmctld.
    pub stateful_sets: Store<RawObject<StatefulSet>>,
    /// The pods of slurmctld, and those that check configurations.
    pub pods: Store<Pod>,
    /// The active daemon of each Controller that has several.
    pub actives: Actives,
    /// The change of configuration that is waiting.
    pub pending: PerObject<Option<Pending>>,
    /// How long changes of configuration wait for each other.
    delay: Duration,
    service_monitors: watch::Sender<bool>,
}

impl Context {
    /// Begins to watch ServiceMonitors: they are known to be installed.
    pub fn watch_service_monitors(&self) {
        self.service_monitors.send_replace(true);
    }
}

/// Why a Controller is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What there is could not be read.
    #[error("the API server did not answer as expected")]
    Observe(#[from] kube::Error),
    /// Children could not be made.
    #[error("{error}")]
    ChildWriter {
        /// What went wrong.
        error: StepErrors,
        /// When to look again in any case.
        again: Option<Duration>,
    },
    /// The status could not be written.
    #[error(transparent)]
    Status(#[from] apply::Error),
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Observe(error) => error.class(),
            Self::ChildWriter { error, again } => match (error.class(), *again) {
                (Class::Waiting(after), Some(again)) => Class::Waiting(after.min(again)),
                (Class::Invalid, Some(again)) => Class::Waiting(again),
                (class, _) => class,
            },
            Self::Status(error) => error.class(),
        }
    }

    fn category(&self) -> &'static str {
        match self {
            Self::Observe(error) => error.category(),
            Self::ChildWriter { error, .. } => error.category(),
            Self::Status(error) => error.category(),
        }
    }
}

/// Starts the controller in every namespace that is watched. Changes of configuration wait for each other for `delay`.
pub async fn start(runtime: Runtime, delay: Duration) -> anyhow::Result<()> {
    runtime.for_each_scope(move |scope| run(scope, delay)).await
}

async fn run(scope: Scope, delay: Duration) -> anyhow::Result<()> {
    let children = || watcher::Config::default().labels(&format!("{APP_NAME}={}", Controller::NAME));
    let with_checks =
        || watcher::Config::default().labels(&format!("{APP_NAME} in ({}, {CHECK_APP})", Controller::NAME));
    let (accountings, accounting_changes) = scope.cache::<Accounting>(watcher::Config::default());
    let (node_sets, node_set_changes) = scope.cache::<NodeSet>(watcher::Config::default());
    let (services, service_changes) = scope.cache(children());
    let (stateful_sets, stateful_set_changes) = scope.cache(children());
    let (config_maps, config_map_changes) = scope.cache(with_checks());
    let (pods, pod_changes) = scope.cache::<Pod>(with_checks());
    let controller = scope.controller::<Controller>(watcher::Config::default());
    let store = controller.store();
    let (actives, active_changes) = active::watch(&scope, store.clone(), pods.clone())?;
    let (service_monitors, wanted) = watch::channel(false);
    let accounting_changes = spec_changes(accounting_changes, accountings.clone());
    let node_set_changes = changed_by(node_set_changes, node_sets.clone(), |set| {
        (set.metadata.generation, node_count(set), set.releases_partition())
    });
    let controller = controller
        .owns_stream(service_changes)
        .owns_stream(stateful_set_changes)
        .owns_stream(config_map_changes)
        .owns_stream(service_monitor_changes(&scope, wanted))
        .watches_stream(pod_changes, |pod| controller_of(&pod))
        .watches_stream(
            accounting_changes,
            refer(&store, |spec, name| {
                spec.accounting_ref.as_ref().is_some_and(|accounting| accounting.name == name)
            }),
        )
        .watches_stream(node_set_changes, |set| {
            let name = &set.spec.controller_ref.name;
            [ObjectRef::new(name).within(&set.namespace().unwrap_or_default())]
        })
        .watches_stream(scope.changes::<Secret>(watcher::Config::default()), refer(&store, uses_secret))
        .watches_stream(
            scope.changes::<ConfigMap>(watcher::Config::default()),
            refer(&store, uses_config_map),
        )
        .reconcile_on(active_changes);
    let context = Context {
        scope: scope.clone(),
        accountings,
        node_sets,
        services,
        config_maps,
        stateful_sets,
        pods,
        actives,
        pending: PerObject::default(),
        delay,
        service_monitors,
    };
    scope.run_controller(controller, reconcile, Arc::new(context)).await;
    Ok(())
}

/// Changes of ServiceMonitors, from the moment on that they are known to be installed: a watch of what is not there would
/// ask for it again and again.
fn service_monitor_changes(
    scope: &Scope,
    mut wanted: watch::Receiver<bool>,
) -> futures::stream::BoxStream<'static, watcher::Result<PartialObjectMeta<ServiceMonitor>>> {
    let scope = scope.clone();
    let opened = async move { wanted.wait_for(|wanted| *wanted).await.is_ok() };
    futures::stream::once(opened)
        .filter(|opened| futures::future::ready(*opened))
        .flat_map(move |_| scope.changes::<ServiceMonitor>(watcher::Config::default()))
        .boxed()
}

/// The Controllers that refer to an object.
fn refer<K: Resource<DynamicType = ()>>(
    controllers: &Store<Controller>,
    refers: impl Fn(&ControllerSpec, &str) -> bool + Send + Sync + 'static,
) -> impl Fn(K) -> Vec<ObjectRef<Controller>> + Send + Sync + 'static {
    let controllers = controllers.clone();
    move |object| referrers(&controllers, &object, |controller, name| refers(&controller.spec, name))
}

fn uses_secret(spec: &ControllerSpec, name: &str) -> bool {
    [spec.slurm_key_ref.as_ref(), spec.signing_key_ref()].into_iter().flatten().any(|key| key.name == name)
}

fn uses_config_map(spec: &ControllerSpec, name: &str) -> bool {
    spec.config_map_names().contains(&name)
        || spec.jwks_key_ref.as_ref().is_some_and(|jwks| jwks.name == name)
}

/// The Controller of a pod: its owner is the StatefulSet, its labels tell.
fn controller_of(pod: &Pod) -> Option<ObjectRef<Controller>> {
    let name = pod.labels().get(APP_INSTANCE)?;
    Some(ObjectRef::new(name).within(&pod.namespace()?))
}

#[instrument(skip_all, fields(namespace = controller.namespace(), name = controller.name_any()))]
async fn reconcile(controller: Arc<Controller>, context: Arc<Context>) -> Result<Action, Error> {
    if controller.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    #[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
    let now = Timestamp::now();
    let observed = observe(&controller, &context).await?;
    let plan = plan(&controller, &observed, context.delay, now);
    let waiting = plan.as_ref().ok().and_then(|plan| plan.pending.clone());
    context.pending.with(controller.as_ref(), |pending| *pending = waiting);
    let outcome = Box::pin(execute(plan, &controller, &observed, &context)).await;
    let status = status(&controller, &observed, &outcome, now);
    context.scope.applier().apply_status(controller.as_ref(), &status).await?;
    tell(&controller, &status, &context.scope);
    let again = again(&outcome, &status);
    outcome.result.map_err(|error| Error::ChildWriter { error, again })?;
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// When to look again although nothing that is watched changed.
fn again(outcome: &Outcome, status: &ControllerStatus) -> Option<Duration> {
    let step = outcome.config.as_ref().map(|config| &config.step);
    let config = match step {
        Some(Step::Settle(left) | Step::AwaitCheck(left)) => Some(*left),
        _ => is_unsettled(status).then_some(SOON),
    };
    let monitor = (outcome.monitoring == Some(Monitoring::NotInstalled)).then_some(LATER);
    [config, monitor].into_iter().flatten().min()
}

/// Tells of what became of the configuration and of the metrics. What went wrong otherwise is an error, and told as such.
fn tell(controller: &Controller, status: &ControllerStatus, scope: &Scope) {
    for condition in news(controller.status.as_ref(), status) {
        let holds = condition.status == ConditionStatus::True.as_str();
        let notice = NewEvent {
            type_: if holds { EventType::Normal } else { EventType::Warning },
            reason: condition.reason.clone(),
            action: condition.type_.clone(),
            note: condition.message.clone(),
            related: None,
        };
        scope.events().publish_change(controller, notice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::Configured;
    use crate::fixture::{controller, second, told};
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::slurm_key("auth", true)]
    #[case::jwt_key("tokens", true)]
    #[case::of_no_concern("other", false)]
    fn the_secrets_of_a_controller(#[case] name: &str, #[case] concerned: bool) {
        assert_eq!(uses_secret(&controller(&json!({})).spec, name), concerned);
    }

    #[rstest]
    #[case::file("files", true)]
    #[case::script("scripts", true)]
    #[case::keys_of_others("issuers", true)]
    #[case::of_no_concern("other", false)]
    fn the_config_maps_of_a_controller(#[case] name: &str, #[case] concerned: bool) {
        let controller = controller(&json!({
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "configFileRefs": [{ "name": "files" }],
            "epilogSlurmctldScriptRefs": [{ "name": "scripts" }],
        }));
        assert_eq!(uses_config_map(&controller.spec, name), concerned);
    }

    const LEFT: Duration = Duration::from_secs(3);

    #[rstest]
    #[case::nothing_to_wait_for(Step::Keep, "Applied", None, None)]
    #[case::more_changes(Step::Settle(LEFT), "Pending", None, Some(LEFT))]
    #[case::a_check(Step::AwaitCheck(LEFT), "Checking", None, Some(LEFT))]
    #[case::a_word_of_slurmctld(Step::Keep, "Reconfiguring", None, Some(SOON))]
    #[case::nobody_will_tell(Step::Keep, "Unconfirmed", None, None)]
    #[case::a_refusal_that_only_an_edit_ends(Step::Refuse(String::new()), "Refused", None, None)]
    #[case::the_kind(Step::Keep, "Applied", Some(Monitoring::NotInstalled), Some(LATER))]
    #[case::the_soonest(Step::Settle(LEFT), "Pending", Some(Monitoring::NotInstalled), Some(LEFT))]
    fn what_is_not_watched_is_looked_at_again(
        #[case] step: Step,
        #[case] said: &str,
        #[case] monitoring: Option<Monitoring>,
        #[case] expected: Option<Duration>,
    ) {
        let config = Configured { step, name: String::new(), refused_node_sets: vec![], warnings: vec![] };
        let outcome =
            Outcome { stateful_set: None, config: Some(config), ignored: None, monitoring, result: Ok(()) };
        let status = told(controller(&json!({})), said, "", second(0)).status.unwrap();
        assert_eq!(again(&outcome, &status), expected);
    }
}
