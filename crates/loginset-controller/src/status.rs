//! Builds the status of a LoginSet. Pure.

use crate::execute::Outcome;
use crate::observe::Observed;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use operator_runtime::{Classify, RawObject};
use pod_builder::{Rollout, deployment_rollout};
use slinky_api::conditions::{Summary, summarise};
use slinky_api::labels::{selector_labels, to_selector};
use slinky_api::ownership::is_controlled_by;
use slinky_api::v1beta1::LoginSetStatus;

/// The status after a reconcile. Pods of a Deployment that the reconcile did not write count as replicas, too.
pub fn status(observed: &Observed, outcome: &Outcome, now: Timestamp) -> LoginSetStatus {
    let loginset = observed.loginset.as_ref();
    let mut status = loginset.status.clone().unwrap_or_default();
    let written = outcome.result.is_ok().then_some(outcome.deployment.as_ref()).flatten();
    let live = observed.deployment.as_deref().filter(|live| is_controlled_by(&live.metadata, loginset));
    status.replicas = written.or(live).map_or(0, replicas);
    status.selector = to_selector(&selector_labels(loginset));
    summarise(&mut status.conditions, &summary(outcome), loginset.metadata.generation, now);
    status
}

fn replicas(deployment: &RawObject<Deployment>) -> i32 {
    deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default()
}

fn summary(outcome: &Outcome) -> Summary {
    if let Err(error) = &outcome.result {
        return Summary::Degraded(error.category(), error.to_string());
    }
    match outcome.deployment.as_deref().map(deployment_rollout) {
        Some(Rollout::Complete(pods)) => Summary::Ready(format!("login: {pods}")),
        Some(Rollout::Underway(progress)) => Summary::Progressing("RollingOut", progress),
        None if outcome.created_host_keys => {
            let message = "ssh host keys were created; the Deployment is applied next";
            Summary::Progressing("RollingOut", message.to_owned())
        }
        None => {
            Summary::Progressing("Replacing", "an old child of the same name is being deleted".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::loginset;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use operator_runtime::references::ResolvedKey;
    use rstest::rstest;
    use serde_json::json;
    use slinky_api::conditions::{PROGRESSING, find};
    use std::sync::Arc;

    fn deployment(owner: &str, ready_pods: i32) -> RawObject<Deployment> {
        let owner = json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner, "controller": true });
        RawObject::new(json!({
            "metadata": { "generation": 1, "ownerReferences": [owner] },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready_pods },
        }))
        .unwrap()
    }

    fn status_of(
        live: Option<RawObject<Deployment>>,
        written: Option<RawObject<Deployment>>,
        created_host_keys: bool,
    ) -> LoginSetStatus {
        let observed = Observed {
            loginset: Arc::new(loginset(&json!({}))),
            cluster_domain: String::new(),
            cluster: None,
            sssd_conf: Ok(ResolvedKey { holder: Secret::default(), value: ByteString::default() }),
            host_keys: Ok(None),
            config: None,
            service: None,
            deployment: live.map(Arc::new),
            pods: vec![],
        };
        let outcome = Outcome { deployment: written, created_host_keys, result: Ok(()) };
        status(&observed, &outcome, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn scale_subresource_selects_and_counts_the_pods() {
        let status = status_of(None, Some(deployment("u", 1)), false);
        assert_eq!(status.selector, "app.kubernetes.io/instance=front,app.kubernetes.io/name=login");
        assert_eq!(status.replicas, 2);
        let progressing = find(&status.conditions, PROGRESSING).unwrap();
        assert_eq!(
            (progressing.status.as_str(), progressing.message.as_str()),
            ("True", "1 of 2 pods are ready")
        );
    }

    #[rstest]
    #[case::owned("u", 2)]
    #[case::controlled_by_another_owner("other", 0)]
    fn pods_of_an_owned_deployment_count_if_it_was_not_written(#[case] owner: &str, #[case] replicas: i32) {
        assert_eq!(status_of(Some(deployment(owner, 2)), None, false).replicas, replicas);
        assert_eq!(status_of(None, None, false).replicas, 0);
    }

    #[rstest]
    #[case::next_reconcile_applies_the_deployment(true, "RollingOut")]
    #[case::old_child_is_being_deleted(false, "Replacing")]
    fn progress_without_a_deployment(#[case] created_host_keys: bool, #[case] reason: &str) {
        let status = status_of(None, None, created_host_keys);
        assert_eq!(find(&status.conditions, PROGRESSING).unwrap().reason, reason);
    }
}
