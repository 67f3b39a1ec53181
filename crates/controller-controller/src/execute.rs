//! Puts a plan into effect.

use crate::build::{Rendered, ServiceMonitor};
use crate::controller::Context;
use crate::observe::Observed;
use crate::plan::{Config, Daemons, Obstacle, Plan, Workload};
use crate::rollout::Step;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use operator_runtime::apply;
use operator_runtime::error::chain;
use operator_runtime::events::{EventType, NewEvent};
use operator_runtime::{ChildWriter, Class, Classify, RawObject, StepErrors};
use pod_builder::hash_files;
use serde_json::{Value, json};
use slinky_api::labels::{CONTROLLER_ACTIVE, TRUE, annotations};
use slinky_api::names::controller::workload;
use slinky_api::v1beta1::Controller;
use std::sync::Arc;
use tracing::info;

/// What became of a plan.
pub struct Outcome {
    /// The StatefulSet as it is now.
    pub stateful_set: Option<RawObject<StatefulSet>>,
    /// What became of the configuration.
    pub config: Option<Configured>,
    /// What the user asked for and cannot have.
    pub ignored: Option<&'static str>,
    /// Whether Prometheus is told to read the metrics; `None` if nobody asked for it.
    pub monitoring: Option<Monitoring>,
    /// What went wrong.
    pub result: Result<(), StepErrors>,
}

/// Whether Prometheus is told to read the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring {
    /// It is told.
    Told,
    /// There is no such kind as ServiceMonitor.
    NotInstalled,
    /// The ServiceMonitor could not be made.
    Failed,
}

/// A configuration after a pass.
pub struct Configured {
    /// What was done.
    pub step: Step,
    /// The name of the configuration in force.
    pub name: String,
    /// NodeSets that are not in it as they are written.
    pub refused_node_sets: Vec<String>,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0} was not done")]
struct Undone(String, #[source] kube::Error);

impl Classify for Undone {
    fn class(&self) -> Class {
        self.1.class()
    }

    fn category(&self) -> &'static str {
        self.1.category()
    }
}

/// Makes the children what they should be.
pub async fn execute(
    plan: Result<Plan, Obstacle>,
    controller: &Controller,
    observed: &Observed,
    context: &Context,
) -> Outcome {
    let mut run = Run { pass: ChildWriter::new(&context.scope, controller), controller, observed, context };
    let Some(plan) = run.pass.record("Plan", plan) else {
        let result = run.pass.finish();
        return Outcome { stateful_set: None, config: None, ignored: None, monitoring: None, result };
    };
    let (config, stateful_set, ignored) = match plan.daemons {
        None => {
            run.remove_daemons().await;
            (run.apply_config(plan.config).await, None, None)
        }
        Some(Daemons { service, internal_service, stateful_set, marks, announcements, stuck, ignored }) => {
            let live = observed.internal_service.as_deref();
            run.pass.apply("Internal Service", internal_service, live).await;
            run.pass.apply("Service", service, observed.service.as_deref()).await;
            let config = run.apply_config(plan.config).await;
            run.mark(&marks).await;
            let stateful_set = run.apply_stateful_set(stateful_set).await;
            run.announce(&announcements).await;
            run.clear(&stuck).await;
            (config, stateful_set, ignored)
        }
    };
    let monitoring = run.apply_service_monitor(plan.service_monitor).await;
    Outcome { stateful_set, config, ignored, monitoring, result: run.pass.finish() }
}

/// One pass over the children of one Controller.
struct Run<'a> {
    pass: ChildWriter<'a, Controller>,
    controller: &'a Controller,
    observed: &'a Observed,
    context: &'a Context,
}

impl Run<'_> {
    /// The cluster runs elsewhere: what ran here goes, and its volume stays.
    async fn remove_daemons(&mut self) {
        let observed = self.observed;
        self.pass.delete_if_controlled("StatefulSet", observed.stateful_set.as_deref()).await;
        self.pass.delete_if_controlled("Service", observed.service.as_deref()).await;
        self.pass.delete_if_controlled("Internal Service", observed.internal_service.as_deref()).await;
        self.remove_check().await;
    }

    /// Carries out the step, and says what was done in the end.
    async fn apply_config(&mut self, config: Result<Config, Obstacle>) -> Option<Configured> {
        let Config { mut step, in_force: mut written, check, mut name, rendered } =
            self.pass.record("Config", config)?;
        if let Some((candidate, pod)) = check
            && let Err(refusal) = self.start_check(&candidate, &pod).await
        {
            // Nobody lets us check; that must not stop the change for ever.
            name = hash_files(&self.observed.etc(self.controller, &rendered.files));
            written.data = Some(rendered.files.clone());
            step = Step::Write(Some(format!("the configuration could not be checked ({refusal})")));
        }
        if matches!(step, Step::Keep | Step::Write(_)) {
            self.remove_check().await;
        }
        if let Step::Write(doubt) = &step
            && self.observed.config.is_some()
        {
            info!(config = name, doubt, "Writing a changed configuration");
            self.tell_of_doubt(doubt.as_deref());
        }
        self.pass.apply("Config", Ok::<_, apply::Error>(written), self.observed.config.as_deref()).await;
        let Rendered { refused_node_sets, warnings, .. } = rendered;
        Some(Configured { step, name, refused_node_sets, warnings })
    }

    fn tell_of_doubt(&self, doubt: Option<&str>) {
        let Some(doubt) = doubt else { return };
        let notice = NewEvent {
            type_: EventType::Warning,
            reason: "ConfigUnchecked".to_owned(),
            action: "Configure".to_owned(),
            note: doubt.to_owned(),
            related: None,
        };
        self.context.scope.events().publish(self.controller, notice);
    }

    /// Makes the check pod; the error says why nobody lets us.
    async fn start_check(&mut self, candidate: &ConfigMap, pod: &RawObject<Pod>) -> Result<(), String> {
        if let Some(old) = &self.observed.check {
            self.pass.delete("Config Check", old.as_ref()).await;
            // Its end wakes us.
            return Ok(());
        }
        let applier = self.context.scope.applier();
        let mut made = applier.apply(candidate, self.observed.candidate.as_deref()).await.map(drop);
        if made.is_ok() {
            made = applier.create(pod).await.map(drop);
        }
        match made {
            Err(error) if !may_pass(&error) => Err(chain(&error)),
            made => {
                self.pass.record("Config Check", made);
                Ok(())
            }
        }
    }

    async fn remove_check(&mut self) {
        self.pass.delete_if_controlled("Config Check", self.observed.check.as_deref()).await;
        self.pass.delete_if_controlled("Config Check", self.observed.candidate.as_deref()).await;
    }

    async fn apply_stateful_set(&mut self, workload: Workload) -> Option<RawObject<StatefulSet>> {
        let live = self.observed.stateful_set.as_deref();
        match workload {
            Workload::Apply(set) => self.pass.apply("StatefulSet", Ok::<_, apply::Error>(*set), live).await,
            Workload::Leave => live.cloned(),
            Workload::Blocked(obstacle) => {
                self.pass.keep::<(), _>("StatefulSet", Err(obstacle));
                live.cloned()
            }
            Workload::Recreate => {
                self.release_stateful_set().await;
                None
            }
        }
    }

    /// Deletes the StatefulSet and leaves its pods, which the next one takes over.
    async fn release_stateful_set(&mut self) {
        let Some(live) = self.observed.stateful_set.as_deref() else { return };
        if live.metadata.deletion_timestamp.is_some() {
            return;
        }
        let preconditions = Preconditions { uid: live.uid(), resource_version: live.resource_version() };
        let parameters = DeleteParams::orphan().preconditions(preconditions);
        let sets: Api<StatefulSet> = self.api();
        info!(name = live.name_any(), "Making a StatefulSet anew around its pods");
        let deleted = sets.delete(&live.name_any(), &parameters).await;
        let deleted = deleted
            .map(drop)
            .map_err(|error| Undone("the deletion of the old StatefulSet".to_owned(), error));
        self.pass.record("StatefulSet", deleted);
    }

    async fn mark(&mut self, marks: &[(String, bool)]) {
        for (pod, is_active) in marks {
            info!(pod, is_active, "Marking a slurmctld");
            let value = is_active.then_some(TRUE);
            self.patch_pod("Active Label", pod, &json!({ "labels": { CONTROLLER_ACTIVE: value } })).await;
        }
    }

    async fn announce(&mut self, announcements: &[(String, String)]) {
        for (pod, config) in announcements {
            let annotations = json!({ "annotations": { annotations::CONFIG: config } });
            self.patch_pod("Reconfigure", pod, &annotations).await;
        }
    }

    /// Deletes pods that never started, so that their successors can.
    async fn clear(&mut self, stuck: &[Arc<Pod>]) {
        for pod in stuck {
            let name = pod.name_any();
            info!(pod = name, "Replacing a pod that does not start");
            let preconditions = Preconditions { uid: pod.uid(), resource_version: pod.resource_version() };
            let parameters = DeleteParams::default().preconditions(preconditions);
            match self.api::<Pod>().delete(&name, &parameters).await {
                Ok(_) => {}
                // It changed, or went by itself: its next event tells.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => {
                    let undone = Undone(format!("the deletion of pod {name}, which does not start,"), error);
                    self.pass.keep::<(), _>("StatefulSet", Err(undone));
                }
            }
        }
    }

    async fn patch_pod(&mut self, step: &'static str, name: &str, metadata: &Value) {
        let pods: Api<Pod> = self.api();
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let parameters =
            PatchParams { field_manager: Some(crate::NAME.to_owned()), ..PatchParams::default() };
        match pods.patch_metadata(name, &parameters, &patch).await {
            Ok(_) => {}
            // Its successor is on its way.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                self.pass.keep::<(), _>(step, Err(Undone(format!("a change of pod {name}"), error)));
            }
        }
    }

    /// Whether Prometheus is told; `None` if nobody asked for it.
    async fn apply_service_monitor(&mut self, wanted: Option<ServiceMonitor>) -> Option<Monitoring> {
        const STEP: &str = "ServiceMonitor";
        let Some(wanted) = wanted else {
            let name = workload(&self.controller.name_any());
            match self.api::<ServiceMonitor>().get(&name).await {
                Ok(live) => self.pass.delete_if_controlled(STEP, Some(&live)).await,
                Err(error) if is_not_there(&error) => {}
                Err(error) => {
                    self.pass
                        .keep::<(), _>(STEP, Err(Undone(format!("the removal of {STEP} {name}"), error)));
                }
            }
            return None;
        };
        let applied = self.context.scope.applier().apply(&wanted, None).await;
        if let Err(apply::Error::Api { source, .. }) = &applied
            && is_not_there(source)
        {
            return Some(Monitoring::NotInstalled);
        }
        if self.pass.record(STEP, applied).is_none() {
            return Some(Monitoring::Failed);
        }
        self.context.watch_service_monitors();
        Some(Monitoring::Told)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.context.scope.client(), &self.controller.namespace().unwrap_or_default())
    }
}

/// True if the same request may succeed later. A check that nobody permits is not worth waiting for.
fn may_pass(error: &apply::Error) -> bool {
    const TOO_MANY_REQUESTS: u16 = 429;
    match error {
        apply::Error::Foreign { .. } | apply::Error::Serialise { .. } => false,
        apply::Error::Api { source: kube::Error::Api(status), .. } => {
            let is_refused = (400..500).contains(&status.code);
            !is_refused || status.is_conflict() || status.code == TOO_MANY_REQUESTS
        }
        apply::Error::Api { .. } => true,
    }
}

/// True if there is no such object, or no such kind: then the answer is a bare 404 without a reason.
fn is_not_there(error: &kube::Error) -> bool {
    const NOT_FOUND: u16 = 404;
    matches!(error, kube::Error::Api(status) if status.code == NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use rstest::rstest;

    fn answer(code: u16, reason: &str) -> apply::Error {
        let source = kube::Error::Api(Box::new(Status::failure("no", reason).with_code(code)));
        apply::Error::Api { verb: "create", object: String::new(), source }
    }

    #[rstest]
    #[case::forbidden(answer(403, "Forbidden"), false)]
    #[case::rejected(answer(422, "Invalid"), false)]
    #[case::by_a_webhook(answer(400, "BadRequest"), false)]
    #[case::foreign(apply::Error::Foreign { object: String::new(), owner: None }, false)]
    #[case::conflict(answer(409, "Conflict"), true)]
    #[case::busy(answer(429, "TooManyRequests"), true)]
    #[case::fault(answer(500, "InternalError"), true)]
    fn a_check_that_nobody_permits_is_not_awaited(#[case] error: apply::Error, #[case] expected: bool) {
        assert_eq!(may_pass(&error), expected);
    }

    #[rstest]
    #[case::no_such_object(404, "NotFound", true)]
    #[case::no_such_kind(404, "", true)]
    #[case::forbidden(403, "Forbidden", false)]
    fn what_is_not_there_is_no_fault(#[case] code: u16, #[case] reason: &str, #[case] expected: bool) {
        let error = kube::Error::Api(Box::new(Status::failure("no", reason).with_code(code)));
        assert_eq!(is_not_there(&error), expected);
    }
}
