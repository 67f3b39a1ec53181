//! Writes the children of a plan.

use crate::host_keys::generate;
use crate::observe::Observed;
use crate::plan::{HostKeys, NewHostKeys, Obstacle, Plan, PodLabel};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use operator_runtime::{ChildWriter, RawObject, Scope, StepErrors, apply};
use slinky_api::v1beta1::LoginSet;
use std::convert::Infallible;

/// Result of a plan's steps.
pub struct Outcome {
    /// The Deployment as it is now; `None` if it waits for host keys, a step failed or an old child is being deleted.
    pub deployment: Option<RawObject<Deployment>>,
    /// Whether ssh host keys were created. The watch event of their Secret enqueues the LoginSet.
    pub created_host_keys: bool,
    /// The steps that failed.
    pub result: Result<(), StepErrors>,
}

/// Performs the steps. A failed step stops only those that depend on it.
pub async fn execute(plan: Plan, observed: &Observed, scope: &Scope) -> Outcome {
    let mut children = ChildWriter::new(scope, observed.loginset.as_ref());
    let config = Ok::<_, Infallible>(plan.config);
    let config = children.apply("SSH Config", config, observed.config.as_deref()).await;
    children.apply("Service", plan.service, observed.service.as_deref()).await;
    // Generating keys takes seconds of CPU time: not before the API server has accepted the first write.
    let created_host_keys =
        config.is_some() && create_host_keys(plan.host_keys, &mut children, observed, scope).await;
    let deployment = children.record("Deployment", plan.deployment).flatten();
    let deployment = match (deployment, config) {
        (Some(desired), Some(_)) => {
            let desired = Ok::<_, Infallible>(desired);
            children.apply("Deployment", desired, observed.deployment.as_deref()).await
        }
        // Pods could not mount a ConfigMap that does not exist, and must not mount one of another owner.
        _ => None,
    };
    for label in plan.pod_labels {
        let labelled = label_pod(label, observed, scope).await;
        children.record("Pod Labels", labelled);
    }
    Outcome { deployment, created_host_keys, result: children.finish() }
}

/// Adds a label to a pod, unless the pod was deleted or replaced.
async fn label_pod(label: PodLabel, observed: &Observed, scope: &Scope) -> Result<(), apply::Error> {
    let namespace = observed.loginset.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(scope.client(), &namespace);
    let parameters = PatchParams { field_manager: Some(crate::NAME.to_owned()), ..PatchParams::default() };
    match pods.patch_metadata(&label.pod, &parameters, &Patch::Merge(label.patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(source) => {
            let object = format!("Pod {namespace}/{}", label.pod);
            Err(apply::Error::Api { verb: "label", object, source })
        }
    }
}

/// Creates the Secret with the host keys if that is planned.
async fn create_host_keys(
    planned: Result<HostKeys, Obstacle>,
    children: &mut ChildWriter<'_, LoginSet>,
    observed: &Observed,
    scope: &Scope,
) -> bool {
    const STEP: &str = "SSH Host Keys";
    let Some(HostKeys::Create(keys)) = children.record(STEP, planned) else { return false };
    let NewHostKeys { secret, event } = *keys;
    // The keys are random, so the plan cannot hold them.
    let secret = generate().await.map(|files| Secret { data: Some(files), ..secret });
    // If another process created the Secret first, its keys are used.
    let is_created = children.create(STEP, secret).await.is_some();
    if is_created && let Some(event) = event {
        scope.events().publish(observed.loginset.as_ref(), event);
    }
    is_created
}
