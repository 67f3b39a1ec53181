//! Puts a plan into effect.

use crate::observe::Observed;
use crate::plan::Plan;
use k8s_openapi::api::apps::v1::Deployment;
use operator_runtime::{ChildWriter, RawObject, Scope, StepErrors};
use slinky_api::v1beta1::RestApi;

/// What became of a plan.
pub struct Outcome {
    /// The Deployment as it is now.
    pub deployment: Option<RawObject<Deployment>>,
    /// What went wrong.
    pub result: Result<(), StepErrors>,
}

/// Makes the children what they should be.
pub async fn execute(plan: Plan, restapi: &RestApi, observed: &Observed, scope: &Scope) -> Outcome {
    let mut pass = ChildWriter::new(scope, restapi);
    pass.apply("Service", plan.service, observed.service.as_deref()).await;
    let deployment = pass.apply("Deployment", plan.deployment, observed.deployment.as_deref()).await;
    Outcome { deployment, result: pass.finish() }
}
