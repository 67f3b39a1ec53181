//! Builds the status of a RestApi. Pure.

use crate::execute::Outcome;
use crate::observe::Observed;
use jiff::Timestamp;
use operator_runtime::Classify;
use pod_builder::{Rollout, deployment_rollout};
use slinky_api::conditions::{Summary, summarise};
use slinky_api::v1beta1::RestApiStatus;

/// The status after a reconcile.
pub fn status(observed: &Observed, outcome: &Outcome, now: Timestamp) -> RestApiStatus {
    let restapi = &observed.restapi;
    let mut status = restapi.status.clone().unwrap_or_default();
    summarise(&mut status.conditions, &summary(outcome), restapi.metadata.generation, now);
    status
}

fn summary(outcome: &Outcome) -> Summary {
    if let Err(error) = &outcome.result {
        return Summary::Degraded(error.category(), error.to_string());
    }
    match outcome.deployment.as_deref().map(deployment_rollout) {
        Some(Rollout::Complete(pods)) => Summary::Ready(format!("slurmrestd: {pods}")),
        Some(Rollout::Underway(progress)) => Summary::Progressing("RollingOut", progress),
        None => Summary::Progressing("Replacing", "the old Deployment is being deleted".to_owned()),
    }
}
