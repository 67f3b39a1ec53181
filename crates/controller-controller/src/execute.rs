//! Performs the steps of a plan. A step that fails does not stop the others.

use crate::build::ServiceMonitor;
use crate::observe::Observed;
use crate::plan::{Plan, Step};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use operator_runtime::apply::Object;
use operator_runtime::error::chain;
use operator_runtime::{ChildWriter, Class, Classify, RawObject, Scope, StepErrors, apply};
use serde_json::{Value, json};
use slinky_api::labels::{CONTROLLER_ACTIVE, TRUE, annotations};
use slinky_api::v1beta1::Controller;
use std::convert::Infallible;
use tracing::info;

/// The result of a plan.
pub struct Outcome {
    /// The live StatefulSet; `None` while an old one is being deleted.
    pub stateful_set: Option<RawObject<StatefulSet>>,
    /// The API server's reason for rejecting the check pod, if it did.
    pub check_rejection: Option<String>,
    /// The result of applying the ServiceMonitor; `None` if the spec wants none.
    pub monitoring: Option<Monitoring>,
    /// The steps that failed.
    pub result: Result<(), StepErrors>,
}

/// The result of applying the ServiceMonitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitoring {
    /// It is applied.
    Applied,
    /// The ServiceMonitor CRD is not installed.
    NotInstalled,
    /// The request failed.
    Failed,
}

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0} failed")]
struct RequestFailed(String, #[source] kube::Error);

impl Classify for RequestFailed {
    fn class(&self) -> Class {
        self.1.class()
    }

    fn category(&self) -> &'static str {
        self.1.category()
    }
}

/// Performs the steps of a plan in their order.
pub async fn execute(plan: &Plan, observed: &Observed, scope: &Scope) -> Outcome {
    let mut writer = ChildWriter::new(scope, observed.controller.as_ref());
    for (step, obstacle) in &plan.obstacles {
        writer.record::<(), _>(step, Err(obstacle.clone()));
    }
    let live = observed.stateful_set.as_deref().filter(|set| set.metadata.deletion_timestamp.is_none());
    let outcome =
        Outcome { stateful_set: live.cloned(), check_rejection: None, monitoring: None, result: Ok(()) };
    let mut run = Run { writer, observed, scope, outcome };
    for step in &plan.steps {
        Box::pin(run.perform(step)).await;
    }
    Outcome { result: run.writer.finish(), ..run.outcome }
}

/// The execution of one plan.
struct Run<'a> {
    writer: ChildWriter<'a, Controller>,
    observed: &'a Observed,
    scope: &'a Scope,
    outcome: Outcome,
}

impl Run<'_> {
    async fn perform(&mut self, step: &Step) {
        let observed = self.observed;
        match step {
            Step::ApplyInternalService(service) => {
                let live = observed.internal_service.as_deref();
                self.apply("Internal Service", service.as_ref(), live).await;
            }
            Step::ApplyService(service) => {
                self.apply("Service", service.as_ref(), observed.service.as_deref()).await;
            }
            Step::ApplyConfig(config) => {
                self.apply("Config", config.as_ref(), observed.config.as_deref()).await;
            }
            Step::ApplyStatefulSet(set) => {
                let live = observed.stateful_set.as_deref();
                self.outcome.stateful_set = self.apply("StatefulSet", set.as_ref(), live).await;
            }
            Step::ApplyServiceMonitor(monitor) => {
                self.outcome.monitoring = Some(self.apply_service_monitor(monitor).await);
            }
            Step::CreateCheck { candidate, pod } => self.create_check(candidate, pod).await,
            Step::LabelPod { pod, is_active } => {
                info!(pod, is_active, "Labelling slurmctld pod");
                let value = is_active.then_some(TRUE);
                self.patch_pod("Active Label", pod, &json!({ "labels": { CONTROLLER_ACTIVE: value } })).await;
            }
            Step::AnnotatePod { pod, config } => {
                let annotations = json!({ "annotations": { annotations::CONFIG: config } });
                self.patch_pod("Reconfigure", pod, &annotations).await;
            }
            Step::OrphanPods(set) => self.orphan_pods(set).await,
            Step::DeletePod(pod) => self.delete_stuck_pod(pod).await,
            Step::DeleteCheckPod(pod) => self.delete_check_pod(pod).await,
            Step::DeleteCandidate(config) => self.writer.delete("Config Check", config.as_ref()).await,
            Step::DeleteStatefulSet(set) => self.writer.delete("StatefulSet", set.as_ref()).await,
            Step::DeleteService(service) => self.writer.delete("Service", service.as_ref()).await,
            Step::DeleteInternalService(service) => {
                self.writer.delete("Internal Service", service.as_ref()).await;
            }
            Step::DeleteServiceMonitor(monitor) => {
                self.writer.delete("ServiceMonitor", monitor.as_ref()).await;
            }
        }
    }

    async fn apply<K: Object>(&mut self, step: &'static str, desired: &K, live: Option<&K>) -> Option<K> {
        self.writer.apply(step, Ok::<_, Infallible>(desired.clone()), live).await
    }

    async fn create_check(&mut self, candidate: &ConfigMap, pod: &RawObject<Pod>) {
        let applier = self.scope.applier();
        let mut created = applier.apply(candidate, self.observed.candidate.as_deref()).await.map(drop);
        if created.is_ok() {
            created = applier.create(pod).await.map(drop);
        }
        match created {
            Err(error) if is_rejection(&error) => self.outcome.check_rejection = Some(chain(&error)),
            created => {
                self.writer.record("Config Check", created);
            }
        }
    }

    /// Deletes the StatefulSet and leaves its pods, which its successor adopts.
    async fn orphan_pods(&mut self, live: &RawObject<StatefulSet>) {
        self.outcome.stateful_set = None;
        let name = live.name_any();
        let preconditions = Preconditions { uid: live.uid(), resource_version: live.resource_version() };
        let parameters = DeleteParams::orphan().preconditions(preconditions);
        info!(name, "Deleting StatefulSet without its pods to recreate it");
        let deleted = self.api::<StatefulSet>().delete(&name, &parameters).await.map(drop);
        let deleted = deleted.map_err(|error| RequestFailed(format!("deleting StatefulSet {name}"), error));
        self.writer.record("StatefulSet", deleted);
    }

    /// Deletes the check pod without waiting for its kubelet, which may be gone with its node: it holds nothing that a
    /// second check pod could collide with.
    async fn delete_check_pod(&mut self, pod: &Pod) {
        self.delete_pod("Config Check", pod, &DeleteParams::default().grace_period(0)).await;
    }

    async fn delete_stuck_pod(&mut self, pod: &Pod) {
        info!(pod = pod.name_any(), "Deleting pod of an old revision that does not start");
        self.delete_pod("StatefulSet", pod, &DeleteParams::default()).await;
    }

    async fn delete_pod(&mut self, step: &'static str, pod: &Pod, parameters: &DeleteParams) {
        let name = pod.name_any();
        let preconditions = Preconditions { uid: pod.uid(), resource_version: pod.resource_version() };
        let parameters = parameters.clone().preconditions(preconditions);
        match self.api::<Pod>().delete(&name, &parameters).await {
            Ok(_) => {}
            // The pod changed or was deleted; its watch event starts the next reconcile.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            Err(error) => {
                let failed = RequestFailed(format!("deleting pod {name}"), error);
                self.writer.record::<(), _>(step, Err(failed));
            }
        }
    }

    async fn patch_pod(&mut self, step: &'static str, name: &str, metadata: &Value) {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let parameters =
            PatchParams { field_manager: Some(crate::NAME.to_owned()), ..PatchParams::default() };
        match self.api::<Pod>().patch_metadata(name, &parameters, &patch).await {
            Ok(_) => {}
            // The StatefulSet replaces the pod.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                let failed = RequestFailed(format!("patching pod {name}"), error);
                self.writer.record::<(), _>(step, Err(failed));
            }
        }
    }

    async fn apply_service_monitor(&mut self, desired: &ServiceMonitor) -> Monitoring {
        let applied = self.scope.applier().apply(desired, None).await;
        if let Err(apply::Error::Api { source, .. }) = &applied
            && is_not_found(source)
        {
            return Monitoring::NotInstalled;
        }
        match self.writer.record("ServiceMonitor", applied) {
            Some(_) => Monitoring::Applied,
            None => Monitoring::Failed,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.scope.client(), &self.observed.controller.namespace().unwrap_or_default())
    }
}

/// True if the API server would answer the same request in the same way later: policies and quotas do not change by
/// themselves.
fn is_rejection(error: &apply::Error) -> bool {
    const TOO_MANY_REQUESTS: u16 = 429;
    match error {
        apply::Error::Foreign { .. } | apply::Error::NameConflict { .. } | apply::Error::Serialise { .. } => {
            true
        }
        apply::Error::Api { source: kube::Error::Api(status), .. } => {
            let is_client_error = (400..500).contains(&status.code);
            is_client_error && !status.is_conflict() && status.code != TOO_MANY_REQUESTS
        }
        apply::Error::Api { .. } => false,
    }
}

/// True if the object does not exist, or its kind is not installed: that is a 404 without a reason.
fn is_not_found(error: &kube::Error) -> bool {
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
    #[case::forbidden(answer(403, "Forbidden"), true)]
    #[case::invalid(answer(422, "Invalid"), true)]
    #[case::rejected_by_a_webhook(answer(400, "BadRequest"), true)]
    #[case::foreign_owner(apply::Error::Foreign { object: String::new(), owner: None }, true)]
    #[case::conflict(answer(409, "Conflict"), false)]
    #[case::throttled(answer(429, "TooManyRequests"), false)]
    #[case::server_error(answer(500, "InternalError"), false)]
    fn only_a_lasting_refusal_is_a_rejection(#[case] error: apply::Error, #[case] expected: bool) {
        assert_eq!(is_rejection(&error), expected);
    }

    #[rstest]
    #[case::missing_object(404, "NotFound", true)]
    #[case::missing_kind(404, "", true)]
    #[case::forbidden(403, "Forbidden", false)]
    fn any_404_means_not_found(#[case] code: u16, #[case] reason: &str, #[case] expected: bool) {
        let error = kube::Error::Api(Box::new(Status::failure("no", reason).with_code(code)));
        assert_eq!(is_not_found(&error), expected);
    }
}
