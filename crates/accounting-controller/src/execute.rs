//! Puts a plan into effect.

use crate::observe::Children;
use crate::plan::Plan;
use k8s_openapi::api::apps::v1::StatefulSet;
use operator_runtime::{ChildWriter, RawObject, Scope, StepErrors};
use slinky_api::v1beta1::Accounting;
use std::convert::Infallible;

/// Makes the children what they should be. Gives the StatefulSet as it is now, if it is there to stay.
pub async fn execute(
    plan: Plan,
    accounting: &Accounting,
    children: &Children,
    scope: &Scope,
) -> Result<Option<RawObject<StatefulSet>>, StepErrors> {
    let mut pass = ChildWriter::new(scope, accounting);
    pass.apply("Service", plan.service, children.service.as_deref()).await;
    let config = pass.apply("Config", plan.config, children.config.as_ref()).await;
    let wanted = pass.record("StatefulSet", plan.stateful_set).flatten();
    let stateful_set = match (wanted, config) {
        (Some(wanted), Some(_)) => {
            let wanted = Ok::<_, Infallible>(wanted);
            pass.apply("StatefulSet", wanted, children.stateful_set.as_deref()).await
        }
        // Pods that were started now would read another configuration than the one that their template names.
        _ => None,
    };
    pass.finish().map(|()| stateful_set)
}

/// Deletes the children: slurmdbd runs elsewhere.
pub async fn remove(accounting: &Accounting, children: &Children, scope: &Scope) -> Result<(), StepErrors> {
    let mut pass = ChildWriter::new(scope, accounting);
    pass.delete_if_controlled("StatefulSet", children.stateful_set.as_deref()).await;
    pass.delete_if_controlled("Service", children.service.as_deref()).await;
    pass.delete_if_controlled("Config", children.config.as_ref()).await;
    pass.finish()
}
