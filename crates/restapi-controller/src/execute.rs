//! Writes the children of a plan.

use crate::observe::Observed;
use crate::plan::Plan;
use k8s_openapi::api::apps::v1::Deployment;
use operator_runtime::{ChildWriter, RawObject, Scope, StepErrors};

/// Result of a plan's steps.
pub struct Outcome {
    /// The Deployment as it is now; `None` if its step failed or an old one is being deleted.
    pub deployment: Option<RawObject<Deployment>>,
    /// The steps that failed.
    pub result: Result<(), StepErrors>,
}

/// Writes the children. A failed step does not stop the other.
pub async fn execute(plan: Plan, observed: &Observed, scope: &Scope) -> Outcome {
    let mut children = ChildWriter::new(scope, observed.restapi.as_ref());
    children.apply("Service", plan.service, observed.service.as_deref()).await;
    let deployment = children.apply("Deployment", plan.deployment, observed.deployment.as_deref()).await;
    Outcome { deployment, result: children.finish() }
}
