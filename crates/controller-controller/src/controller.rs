//! Watches Controllers and everything that their slurmctld depends on, and reconciles one Controller at a time.

use crate::active;
use crate::build::{CHECK_APP, ServiceMonitor, node_count};
use crate::execute::{Monitoring, Outcome, execute};
use crate::observe::{Observed, PendingChange, Sources, observe};
use crate::plan::{Confirmation, Decision, Plan, plan};
use crate::status::{status, transitions};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use operator_runtime::events::{EventType, NewEvent};
use operator_runtime::{
    ComponentError, PerObject, Requeued, Runtime, Scope, changed_by, children_of, referrers, spec_changes,
};
use slinky_api::conditions::{ConditionStatus, DEGRADED};
use slinky_api::labels::{APP_INSTANCE, APP_NAME, App};
use slinky_api::v1beta1::{Accounting, Controller, ControllerSpec, ControllerStatus, NodeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::info;

/// How often the log of a reconfigure container is read while its report is awaited: logs cannot be watched.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// How often the controller checks whether the ServiceMonitor CRD has been installed.
const MONITOR_INTERVAL: Duration = Duration::from_mins(5);

/// Everything that a reconcile works with.
pub struct Context {
    scope: Scope,
    sources: Sources,
    service_monitors: watch::Sender<bool>,
}

/// Starts the controller in every watched namespace. A configuration change waits for `delay` for further changes.
pub async fn start(runtime: Runtime, delay: Duration) -> anyhow::Result<()> {
    runtime.for_each_scope(move |scope| run(scope, delay)).await
}

async fn run(scope: Scope, delay: Duration) -> anyhow::Result<()> {
    let with_checks =
        || watcher::Config::default().labels(&format!("{APP_NAME} in ({}, {CHECK_APP})", Controller::NAME));
    let (accountings, accounting_changes) = scope.cache::<Accounting>(watcher::Config::default());
    let (node_sets, node_set_changes) = scope.cache::<NodeSet>(watcher::Config::default());
    let (services, service_changes) = scope.cache(children_of::<Controller>());
    let (stateful_sets, stateful_set_changes) = scope.cache(children_of::<Controller>());
    let (config_maps, config_map_changes) = scope.cache(with_checks());
    let (pods, pod_changes) = scope.cache::<Pod>(with_checks());
    let controller = scope.controller::<Controller>(watcher::Config::default());
    let store = controller.store();
    let (active_daemons, active_changes) = active::watch(&scope, store.clone(), pods.clone())?;
    let (service_monitors, are_installed) = watch::channel(false);
    let accounting_changes = spec_changes(accounting_changes, accountings.clone());
    let node_set_changes = changed_by(node_set_changes, node_sets.clone(), |set| {
        (set.metadata.generation, node_count(set), set.releases_partition())
    });
    let controller = controller
        .owns_stream(service_changes)
        .owns_stream(stateful_set_changes)
        .owns_stream(config_map_changes)
        .owns_stream(service_monitor_changes(&scope, are_installed))
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
    let sources = Sources {
        client: scope.client(),
        accountings,
        node_sets,
        services,
        config_maps,
        stateful_sets,
        pods,
        active_daemons,
        pending: PerObject::default(),
        refusals: PerObject::default(),
        reconfigure_delay: delay,
    };
    let context = Context { scope: scope.clone(), sources, service_monitors };
    scope.run_component(controller, context, reconcile).await;
    Ok(())
}

/// Changes of ServiceMonitors, once they are known to be installed: the watch of a missing kind would fail and retry for
/// ever.
fn service_monitor_changes(
    scope: &Scope,
    mut are_installed: watch::Receiver<bool>,
) -> futures::stream::BoxStream<'static, watcher::Result<PartialObjectMeta<ServiceMonitor>>> {
    let scope = scope.clone();
    let installed = async move { are_installed.wait_for(|installed| *installed).await.is_ok() };
    futures::stream::once(installed)
        .filter(|installed| futures::future::ready(*installed))
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

/// The Controller of a pod, by its labels: its owner is the StatefulSet.
fn controller_of(pod: &Pod) -> Option<ObjectRef<Controller>> {
    let name = pod.labels().get(APP_INSTANCE)?;
    Some(ObjectRef::new(name).within(&pod.namespace()?))
}

async fn reconcile(
    controller: Arc<Controller>,
    context: Arc<Context>,
    now: Timestamp,
) -> Result<Action, Requeued<ComponentError>> {
    let observed =
        observe(&controller, &context.sources).await.map_err(|error| Requeued::new(error, None))?;
    let plan = plan(&observed, now);
    report_config_change(&plan, &observed, &context.scope);
    let outcome = Box::pin(execute(&plan, &observed, &context.scope)).await;
    let pending = plan.pending.clone().map(|change| PendingChange {
        check_rejection: outcome.check_rejection.clone().or(change.check_rejection),
        ..change
    });
    context.sources.pending.with(controller.as_ref(), |known| *known = pending);
    context.sources.refusals.with(controller.as_ref(), |known| known.clone_from(&plan.refusals));
    if outcome.monitoring == Some(Monitoring::Applied) {
        context.service_monitors.send_replace(true);
    }
    let status = status(&observed, &plan, &outcome, now);
    let requeue_after = requeue_after(&plan, &outcome);
    let written = context.scope.applier().apply_status(controller.as_ref(), &status).await;
    written.map_err(|error| Requeued::new(error, requeue_after))?;
    publish_transitions(&controller, &status, &context.scope);
    outcome.result.map_err(|error| Requeued::new(error, requeue_after))?;
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
}

/// When to reconcile again although no watched object changed.
fn requeue_after(plan: &Plan, outcome: &Outcome) -> Option<Duration> {
    let config = plan.config.as_ref().and_then(|config| match (&config.decision, &config.confirmation) {
        (Decision::Settle(left) | Decision::AwaitCheck(left), _) => Some(*left),
        (_, Some(Confirmation::Awaited | Confirmation::Refused(_))) => Some(REPORT_INTERVAL),
        _ => None,
    });
    // The next plan decides how the change proceeds without a check.
    let rejection = outcome.check_rejection.as_ref().map(|_| Duration::ZERO);
    let monitor = (outcome.monitoring == Some(Monitoring::NotInstalled)).then_some(MONITOR_INTERVAL);
    [config, rejection, monitor].into_iter().flatten().min()
}

/// Logs that a changed configuration takes effect, and publishes an Event if no check confirmed it.
fn report_config_change(plan: &Plan, observed: &Observed, scope: &Scope) {
    let Some(config) = &plan.config else { return };
    let Decision::Write(unchecked) = &config.decision else { return };
    if observed.config.is_none() {
        return;
    }
    info!(config = config.hash, unchecked, "Writing a changed configuration");
    if let Some(note) = unchecked {
        let event = NewEvent {
            type_: EventType::Warning,
            reason: "ConfigUnchecked".to_owned(),
            action: "Configure".to_owned(),
            note: note.clone(),
            related: None,
        };
        scope.events().publish(observed.controller.as_ref(), event);
    }
}

/// Publishes an Event for each changed condition of the configuration and the metrics. Failed reconciles have their own.
fn publish_transitions(controller: &Controller, status: &ControllerStatus, scope: &Scope) {
    for condition in transitions(controller.status.as_ref(), status) {
        let is_good = condition.type_ != DEGRADED && condition.status == ConditionStatus::True.as_str();
        let event = NewEvent {
            type_: if is_good { EventType::Normal } else { EventType::Warning },
            reason: condition.reason.clone(),
            action: condition.type_.clone(),
            note: condition.message.clone(),
            related: None,
        };
        scope.events().publish_change(controller, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{config_plan, controller};
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::slurm_key("auth", true)]
    #[case::jwt_key("tokens", true)]
    #[case::unreferenced("other", false)]
    fn secrets_that_the_spec_refers_to_are_used(#[case] name: &str, #[case] is_used: bool) {
        assert_eq!(uses_secret(&controller(&json!({})).spec, name), is_used);
    }

    #[rstest]
    #[case::config_file("files", true)]
    #[case::script("scripts", true)]
    #[case::jwks("issuers", true)]
    #[case::unreferenced("other", false)]
    fn config_maps_that_the_spec_refers_to_are_used(#[case] name: &str, #[case] is_used: bool) {
        let controller = controller(&json!({
            "jwksKeyRef": { "name": "issuers", "key": "keys" },
            "configFileRefs": [{ "name": "files" }],
            "epilogSlurmctldScriptRefs": [{ "name": "scripts" }],
        }));
        assert_eq!(uses_config_map(&controller.spec, name), is_used);
    }

    const LEFT: Duration = Duration::from_secs(3);

    #[rstest]
    #[case::applied(Decision::Keep, Some(Confirmation::Confirmed), None, None)]
    #[case::waiting_for_further_changes(Decision::Settle(LEFT), None, None, Some(LEFT))]
    #[case::waiting_for_the_check_pod(Decision::AwaitCheck(LEFT), None, None, Some(LEFT))]
    #[case::waiting_for_a_report(Decision::Keep, Some(Confirmation::Awaited), None, Some(REPORT_INTERVAL))]
    #[case::slurmctld_retries(
        Decision::Keep,
        Some(Confirmation::Refused(String::new())),
        None,
        Some(REPORT_INTERVAL)
    )]
    #[case::no_report_in_time(Decision::Keep, Some(Confirmation::TimedOut), None, None)]
    #[case::refused_until_the_next_edit(Decision::Refuse(String::new()), None, None, None)]
    #[case::missing_crd(Decision::Keep, None, Some(Monitoring::NotInstalled), Some(MONITOR_INTERVAL))]
    #[case::earliest_of_several(Decision::Settle(LEFT), None, Some(Monitoring::NotInstalled), Some(LEFT))]
    fn reconcile_is_requeued_for_state_that_is_not_watched(
        #[case] decision: Decision,
        #[case] confirmation: Option<Confirmation>,
        #[case] monitoring: Option<Monitoring>,
        #[case] expected: Option<Duration>,
    ) {
        let plan = Plan { config: Some(config_plan(decision, confirmation)), ..Plan::default() };
        let mut outcome = Outcome { stateful_set: None, check_rejection: None, monitoring, result: Ok(()) };
        assert_eq!(requeue_after(&plan, &outcome), expected);
        outcome.check_rejection = Some("forbidden".to_owned());
        assert_eq!(requeue_after(&plan, &outcome), Some(Duration::ZERO));
    }
}
