//! What an Accounting's status says.

use crate::controller::{Error, Outcome};
use jiff::Timestamp;
use kube::ResourceExt;
use operator_runtime::Classify;
use operator_runtime::error::chain;
use pod_builder::{Rollout, stateful_set_rollout};
use slinky_api::conditions::{Summary, summarise};
use slinky_api::names::accounting::pod;
use slinky_api::v1beta1::{Accounting, AccountingStatus};

/// The status after a pass.
pub fn status(accounting: &Accounting, outcome: &Result<Outcome, Error>, now: Timestamp) -> AccountingStatus {
    let mut status = accounting.status.clone().unwrap_or_default();
    let summary = summary(accounting, outcome);
    summarise(&mut status.conditions, &summary, accounting.metadata.generation, now);
    status
}

fn summary(accounting: &Accounting, outcome: &Result<Outcome, Error>) -> Summary {
    match outcome {
        Err(error) => Summary::Degraded(error.category(), chain(error)),
        Ok(Outcome::External) => Summary::Ready,
        Ok(Outcome::Replacing) => {
            Summary::Progressing("Replacing", "an old child of the same name is being deleted".to_owned())
        }
        Ok(Outcome::Running(stateful_set)) => match stateful_set_rollout(stateful_set) {
            Rollout::Complete => Summary::Ready,
            Rollout::Underway(progress) => {
                Summary::Progressing("RollingOut", format!("{progress}; {}", advice(accounting)))
            }
        },
    }
}

/// Where to look when slurmdbd does not become ready.
fn advice(accounting: &Accounting) -> String {
    let database = accounting.spec.storage_config.as_ref();
    let database = database.map(|it| format!("{}:{}", it.host, it.effective_port())).unwrap_or_default();
    let (namespace, pod) = (accounting.namespace().unwrap_or_default(), pod(&accounting.name_any()));
    format!(
        "slurmdbd serves once it has reached its database at {database}: if it does not, see \
         `kubectl describe pod -n {namespace} {pod}` and `kubectl logs -n {namespace} {pod}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::accounting;
    use operator_runtime::RawObject;
    use serde_json::json;

    fn running(ready: i32) -> Outcome {
        let stateful_set = RawObject::new(json!({
            "metadata": { "generation": 1 },
            "spec": { "replicas": 1, "selector": {}, "serviceName": "s", "template": {} },
            "status": {
                "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready,
                "currentRevision": "a", "updateRevision": "a",
            },
        }));
        Outcome::Running(Box::new(stateful_set.unwrap()))
    }

    #[test]
    fn a_pod_that_is_not_ready_is_told_with_where_to_look() {
        let Summary::Progressing("RollingOut", message) = summary(&accounting(&json!({})), &Ok(running(0)))
        else {
            panic!("it is not ready")
        };
        for part in ["0 of 1 pods are ready", "mariadb:3306", "kubectl logs -n ns books-accounting-0"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn ready_is_what_runs_here_and_what_runs_elsewhere() {
        assert_eq!(summary(&accounting(&json!({})), &Ok(running(1))), Summary::Ready);
        assert_eq!(
            summary(&accounting(&json!({ "external": true })), &Ok(Outcome::External)),
            Summary::Ready
        );
    }
}
