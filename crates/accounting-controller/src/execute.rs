//! Writes or deletes the children of a plan.

use crate::build::ConfigError;
use crate::observe::Observed;
use crate::plan::{Children, Plan};
use k8s_openapi::api::apps::v1::StatefulSet;
use operator_runtime::{ChildWriter, ComponentError, RawObject, Scope};
use slinky_api::v1beta1::Accounting;
use std::convert::Infallible;

/// Result of a plan's steps.
pub struct Outcome {
    /// The StatefulSet as it is now; `None` if slurmdbd is external, a step failed or an old child is being deleted.
    pub stateful_set: Option<RawObject<StatefulSet>>,
    /// Why the children are not as the spec wants them.
    pub result: Result<(), ComponentError<ConfigError>>,
}

/// Performs the steps. A failed step stops only those that depend on it.
pub async fn execute(plan: Plan, observed: &Observed, scope: &Scope) -> Outcome {
    let mut writer = ChildWriter::new(scope, observed.accounting.as_ref());
    let stateful_set = match plan {
        Plan::Refuse(obstacle) => return Outcome { stateful_set: None, result: Err(obstacle.into()) },
        Plan::Apply(children) => apply(*children, observed, &mut writer).await,
        Plan::Delete => {
            writer.delete_if_controlled("StatefulSet", observed.stateful_set.as_deref()).await;
            writer.delete_if_controlled("Service", observed.service.as_deref()).await;
            let config = observed.config.as_ref().ok().and_then(Option::as_ref);
            writer.delete_if_controlled("Config", config).await;
            None
        }
    };
    Outcome { stateful_set, result: writer.finish().map_err(ComponentError::from) }
}

async fn apply(
    children: Children,
    observed: &Observed,
    writer: &mut ChildWriter<'_, Accounting>,
) -> Option<RawObject<StatefulSet>> {
    let live_config = observed.config.as_ref().ok().and_then(Option::as_ref);
    writer.apply("Service", children.service, observed.service.as_deref()).await;
    let config = writer.apply("Config", children.config, live_config).await;
    let stateful_set = writer.record("StatefulSet", children.stateful_set).flatten()?;
    // Without it, pods would start with another configuration than the one whose hash their template has.
    config?;
    let desired = Ok::<_, Infallible>(stateful_set);
    writer.apply("StatefulSet", desired, observed.stateful_set.as_deref()).await
}
