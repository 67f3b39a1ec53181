//! Builds the status of an Accounting. Pure.

use crate::execute::Outcome;
use crate::observe::Observed;
use jiff::Timestamp;
use kube::ResourceExt;
use operator_runtime::Classify;
use operator_runtime::error::chain;
use pod_builder::{Rollout, stateful_set_rollout};
use slinky_api::conditions::{Summary, summarise};
use slinky_api::names::accounting::pod;
use slinky_api::v1beta1::{Accounting, AccountingStatus};

/// The status after a reconcile.
pub fn status(observed: &Observed, outcome: &Outcome, now: Timestamp) -> AccountingStatus {
    let accounting = &observed.accounting;
    let mut status = accounting.status.clone().unwrap_or_default();
    let summary = summary(accounting, outcome);
    summarise(&mut status.conditions, &summary, accounting.metadata.generation, now);
    status
}

fn summary(accounting: &Accounting, outcome: &Outcome) -> Summary {
    if let Err(error) = &outcome.result {
        return Summary::Degraded(error.category(), chain(error));
    }
    if accounting.spec.external {
        return Summary::Ready("slurmdbd is external".to_owned());
    }
    match outcome.stateful_set.as_deref().map(stateful_set_rollout) {
        Some(Rollout::Complete(pods)) => Summary::Ready(format!("slurmdbd: {pods}")),
        Some(Rollout::Underway(progress)) => {
            Summary::Progressing("RollingOut", format!("{progress}; {}", advice(accounting)))
        }
        None => {
            Summary::Progressing("Replacing", "an old child of the same name is being deleted".to_owned())
        }
    }
}

/// Where the cause is found if slurmdbd does not become ready.
fn advice(accounting: &Accounting) -> String {
    let database = accounting.spec.storage_config.as_ref();
    let database = database.map(|it| format!("{}:{}", it.host, it.effective_port())).unwrap_or_default();
    let (namespace, pod) = (accounting.namespace().unwrap_or_default(), pod(&accounting.name_any()));
    format!(
        "slurmdbd becomes ready when it has reached its database at {database}; if it does not, see \
         `kubectl describe pod -n {namespace} {pod}` and `kubectl logs -n {namespace} {pod}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::accounting;
    use operator_runtime::RawObject;
    use serde_json::json;

    fn outcome(ready_pods: i32) -> Outcome {
        let stateful_set = RawObject::new(json!({
            "metadata": { "generation": 1 },
            "spec": { "replicas": 1, "selector": {}, "serviceName": "s", "template": {} },
            "status": {
                "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready_pods,
                "currentRevision": "a", "updateRevision": "a",
            },
        }));
        Outcome { stateful_set: Some(stateful_set.unwrap()), result: Ok(()) }
    }

    #[test]
    fn unready_pod_is_reported_with_the_commands_that_show_why() {
        let Summary::Progressing("RollingOut", message) = summary(&accounting(&json!({})), &outcome(0))
        else {
            panic!("it is not ready")
        };
        for part in ["0 of 1 pods are ready", "mariadb:3306", "kubectl logs -n ns books-accounting-0"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn running_and_external_slurmdbd_are_ready() {
        let running = summary(&accounting(&json!({})), &outcome(1));
        assert_eq!(running, Summary::Ready("slurmdbd: 1 of 1 pods ready".to_owned()));
        let external = Outcome { stateful_set: None, result: Ok(()) };
        let external = summary(&accounting(&json!({ "external": true })), &external);
        assert_eq!(external, Summary::Ready("slurmdbd is external".to_owned()));
    }
}
